"""Ask a served policy five questions of the embedded world and print its bills: `python ask.py ADDRESS`."""

import argparse

import openai

import toolorchestra as to

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("address", help="such as http://localhost:8393/v1")
client = openai.OpenAI(base_url=parser.parse_args().address, api_key="none")
mine = {"tools": "mine/tools.json", "prices": "mine/prices.json", "experts": "mine/experts.json"}
source = to.make("FRAMES-v0", **mine).unwrapped.factory.source  # it knows what is right
for question, task_id in list(source.askable.items())[:5]:
    messages = [{"role": "user", "content": question}]
    made = client.chat.completions.create(model="run", messages=messages, extra_body={"budget_usd": 0.05})
    right = source.question(task_id).answer.text
    print(f"{made.choices[0].message.content} (right: {right}) {made.usage.cost} $ {made.usage.cost_by_role}")
