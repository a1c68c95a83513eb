"""Ask a served policy a question of the embedded world and print its bill: `python ask.py ADDRESS`."""

import sys

import openai

import toolorchestra as to

mine = {"tools": "mine/tools.json", "prices": "mine/prices.json", "experts": "mine/experts.json"}
question = list(to.make("FRAMES-v0", **mine).unwrapped.factory.source.askable)[2]
client = openai.OpenAI(base_url=sys.argv[1], api_key="none")
answer = client.chat.completions.create(
    model="run:frugal", messages=[{"role": "user", "content": question}], extra_body={"budget_usd": 0.05}
)
print(answer.choices[0].message.content, answer.usage.cost, answer.usage.cost_by_role)
