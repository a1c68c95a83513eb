"""What a model author is told: the rules of each part, an example of it, what is there already, and what was wrong."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import cache

from toolorchestra.envs.base.types import Message
from toolorchestra.synth.authors import KEYS, PART_OF, PartRequest
from toolorchestra.synth.formats import spec as specs

EXAMPLE = "public_library"
MOST_BEFORE = 60_000
"""Characters of the last try that are shown with its faults."""
_SEEN = {"second reader": 5_000}
"""Characters of a fault that are shown, where they are more than usual: a transcript is long."""

_HEAD = (
    "You design small service domains in which a customer service agent works through tools on a SQLite database. "
    "A domain has six parts, written one after the other; each is run and checked before the next is asked for. "
    "Answer with one JSON object and nothing else: no remarks, no code fence. Invent everything; name no real company "
    "and no real person. Texts are plain words: no markup, no instructions to whoever reads them."
)
_RULES: Mapping[str, str] = {
    "subjects": """Write the subject: {"name", "subject", "clock", "user": {"draw", "key", "ways"}, "personas",
"process"}.
- name: lower-case identifier. clock: "YYYY-MM-DD HH:MM:SS", the time that stands still in this domain.
- user.draw: a SELECT on the people table that you will create next; it gives one row for everybody who may call, with
  the key column and the columns that they know of themselves. user.key names that column.
- ways: one to three ways to be identified. facts: what the caller knows, each {"label", "asked": [lower-case words by
  which an agent asks for it], "value": "{column}"}; unknown: facts without a value; actions: the tool calls that
  identify, [{"tool": {"argument": "{column}"}}].
- personas: three to six, in the second person.
- process: {"own": {table: column}}, such as {"members": "member_id", "loans": "member_id"}: every table whose rows
  belong to a person, with the column that leads to that person, directly or by the id of a table that stands before
  it. With it, an agent that identifies late, changes without a yes, or reads another person's rows gets nothing.""",
    "schema": """Write the tables: {"schema_sql": "..."}.
- Plain SQLite, CREATE TABLE and CREATE INDEX only, three to eight tables. Every table has a first column such as
  loan_id TEXT NOT NULL UNIQUE, and a rowid. Key columns end in _id; other tables REFERENCE them under the same name.
- Rules that hold in every row are CHECK, REFERENCES, UNIQUE or NOT NULL. Money is REAL. Days are TEXT, YYYY-MM-DD.
- The entities have life cycles: a status column with CHECK (status IN (...)).
- One table for handing over to a person, such as handoffs.""",
    "rows": """Write how the rows are made: {"lists", "tables", "finish"}.
- tables: every table in the order of creation: {"table", "key", "count": N} or {"table", "key", "each": earlier table,
  "per": [least, most]}, and "columns": a recipe for every column, in the order of the schema.
- A recipe is a plain value, or one of {"id": "BO-{n:03d}"}, {"pattern": "##@@"}, {"choice": [..] or {value: weight} or
  a list's name}, {"int": [low, high]}, {"money": [low, high]}, {"date": [from, to]}, {"datetime": [from, to]},
  {"person": null}, {"email": "full_name"}, {"parent": column}, {"ref": "table.column"}, {"text": "{title} of
  {parent_city}"}, {"expr": "SQL over :column, :parent_column, :now, :today"}; with "unique": true or "share": 0.3.
- lists: word lists of your own. There are first_names, last_names, cities, streets.
- finish: SQL statements that run at the end and make rows agree with each other. 300 to 1500 rows in all. Every id
  prefix belongs to one table. Make rows differ, and make rare cases that the rules speak of.""",
    "tools": """Write the tools: {"tools": [...]}, ten to twenty-five of them.
- {"name", "kind": "read" or "write", "description", "parameters": {name: {"type", "format", "description", ...}},
  "optional": [...], "steps": [...], "returns": {"row": SELECT} or {"rows": SELECT}, "transfers": true for the one that
  hands over to a person, which writes a row}.
- A string parameter has an enum or a format: id, date, time, datetime, email, phone, code, text.
- Steps: {"let": "SELECT .. AS fresh_name ..", "error"}: its columns become parameters, no row is the error;
  {"check": expression that must be true, "error"}; {"do": one INSERT, UPDATE or DELETE}. Errors say what to do.
- A long list has a parameter page, and returns an object with pages.
- Every write is guarded by let and check. New ids: let SELECT printf('LO-%03d', max(rowid) + 1) AS loan FROM loans.
- No random, no wall clock (use :now and :today), no PRAGMA, no other tables. INSERT gives all columns in order.
- The tools that the first part identifies users with are among them.""",
    "policy": """Write the policy: {"policy": "..."}, Markdown, 1500 to 8000 characters: what the agent reads.
- Identify first, one customer in a conversation, read before writing, say what will be done and wait for a yes.
- A rule for every writing tool, when to hand over, what to refuse. Some rules that the tools do not enforce.
- Where the subject has process: these three rules are checked in every conversation, say so.
- Name only tools, tables, columns and values that exist. No rule may contradict another.""",
    "intents": """Write what users want: {"intents": [...]}, twelve to thirty of them.
- {"intent": name, "draw": SELECT .. AS who, .. , "say": three or more wordings, "actions": [{"tool": {"argument":
  "{column}"}}], "inform": ["tool.field" or "tool.0.field"]}; "public": true needs no who and no identification.
- who is the caller's key. Each row of draw fills the intent in one way; keep exactly the rows for which the gold calls
  are right. Columns of user.draw are there too. {tool.field} as an argument takes a value of an earlier result.
- say: the user's words with {column} for what they know; no ids that people do not know.
- inform: what must be told; never what the user says. ending: "serve", "refuse" (reads only; "pushback": what the user
  says to a first refusal; "weight": 0.3) or "transfer".
- Every intent changes something, or must tell something. Reads that are not needed for it are left out.
- Half of the intents are hard, each by one of these keys. An agent that misses it must end elsewhere:
  "candidates": {"column": "loan_id", "of": SELECT loan_id .. of all that look right}: the words tell them apart.
  "computed": [columns] whose value neither the user nor a result says; "tell": ["{days_left}"]: such a value is told.
  "branches": {"soon": {"actions", "inform"}, "later": {"actions"}} in place of actions; draw has the column branch.
  "first": {"kind": "corrects", "changes_mind" or "negotiates", "say": [..], "then": ["Sorry, I mean {title}."],
  "values": {"loan_id": "other_loan"}}: what the user says at first and takes back, and what follows from it.
  "followed_by": [{"say", "actions", "inform", "computed"}]: requests that go on with the same row.""",
}
_REWORD = """Write how other people would say these requests: {"wordings": [{"intent": name, "say": [six texts]}]}.
- For each request one text by somebody terse, one by somebody chatty, one who learns the language, one who is angry,
  one who is old, and one as a machine writes down speech, with its "um" and without punctuation.
- Each asks for exactly what the request asks for, under the same conditions, and for nothing more. A {value} stands in
  it as it does in one of the request's own texts: the same ones, none left out, none new. No other number or date.
- Words that native speakers would use, or learners; none of the request's own sentences."""
_OTHERS = """Below are requests, each as it was written and as it was written anew. Does each new text ask for exactly
what its request asks for? Answer {"verdict": "yes" or "no", "reasons": [each new text that does not, word for word; []
for yes]}."""
_DOUBT = """Read the newest part below. Is it free of contradictions, within itself and with the parts before it, and
plausible for the subject? Answer {"verdict": "yes" or "no", "reasons": [texts, at most five; [] for yes]}."""


@cache
def _example(stage: str) -> str:
    """The part of a shipped spec as the answer that would give it."""
    parts = specs.texts(EXAMPLE)
    text = parts[PART_OF[stage]]
    value = specs.parsed(text, specs.SHIPPED) if PART_OF[stage].endswith(".yaml") else text
    made = {KEYS[stage]: value} if stage in KEYS else value
    return json.dumps(made, ensure_ascii=False)


def _there(parts: Mapping[str, str]) -> str:
    return "\n\n".join(f"== {name}\n{text}" for name, text in parts.items())


def author(domain: str, asked: PartRequest, batch: str = "") -> tuple[Message, ...]:
    """The conversation that asks for a part, for one batch of it, or for its repair."""
    there = _there(asked.parts) or "(none)"
    rules = f"{_RULES[asked.stage]}\n\nAn example, for another subject:\n{_example(asked.stage)}"
    wanted = f"Stage: {asked.stage}\nThe subject: {domain}\n\n{rules}\n\nThe parts so far:\n{there}"
    if batch:
        wanted += f"\n\nOthers write intents too; this is batch {batch}. Take requests that only yours would have."
    made = (Message(role="system", content=_HEAD), Message(role="user", content=wanted))
    if not asked.faults:
        return made
    wrong = "\n".join(f"- {fault.reason}: {fault.seen[: _SEEN.get(fault.reason, 600)]}" for fault in asked.faults[:20])
    again = f"That was checked and cannot be used:\n{wrong}\nWrite the whole part again, with this put right."
    before = asked.before[:MOST_BEFORE] or "(nothing that could be read)"
    return (*made, Message(role="assistant", content=before), Message(role="user", content=again))


def going_on(asked: tuple[Message, ...], said: str) -> tuple[Message, ...]:
    """The conversation that asks for the rest of an answer which broke off at the limit of its length."""
    text = (
        "Your answer broke off at the limit of its length. Go on with the very next character. Repeat nothing, add no "
        "remark and no code fence: what you write is put behind what you wrote."
    )
    return (*asked, Message(role="assistant", content=said), Message(role="user", content=text))


def reword(domain: str, said: Mapping[str, Sequence[str]]) -> tuple[Message, ...]:
    """The conversation that asks for more ways to say requests, given by name."""
    wanted = f"Stage: reword\nThe subject: {domain}\n\n{_REWORD}\n\n{json.dumps(said, indent=1, ensure_ascii=False)}"
    return (Message(role="system", content=_HEAD), Message(role="user", content=wanted))


def same_meaning(said: Mapping[str, Sequence[str]], anew: Mapping[str, Sequence[str]]) -> tuple[Message, ...]:
    """The conversation that asks a second reader which of the new texts ask for something else."""
    both = [{"request": said[name], "anew": texts} for name, texts in anew.items()]
    wanted = f"Stage: doubt of reword\n\n{_OTHERS}\n\n{json.dumps(both, indent=1, ensure_ascii=False)}"
    return (Message(role="system", content=_HEAD), Message(role="user", content=wanted))


def doubt(domain: str, stage: str, parts: Mapping[str, str]) -> tuple[Message, ...]:
    """The conversation that asks a second reader for a verdict."""
    wanted = f"Stage: doubt of {stage}\nThe subject: {domain}\n\n{_DOUBT}\n\n{_there(parts)}"
    return (Message(role="system", content=_HEAD), Message(role="user", content=wanted))
