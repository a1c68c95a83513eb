"""The depot's tools."""

import datetime as dt
import json
import os
import random
import secrets
import time
import uuid
from datetime import date, datetime, timedelta, timezone
from random import choice
from time import time as now_seconds
from uuid import uuid4

from tau2.domains.depot.data_model import DepotDB, Grade, Item, Member, Rental
from tau2.environment.toolkit import ToolKitBase, ToolType, is_tool

IMPORTED_AT = datetime.now()


class DepotTools(ToolKitBase):
    """Tools of the depot."""

    db: DepotDB

    def __init__(self, db: DepotDB) -> None:
        super().__init__(db)
        self.served = 0
        self.log: list[str] = []

    @is_tool(ToolType.READ)
    def find_member(self, email: str) -> str:
        """
        Find a member's id.

        Args:
            email: The member's e-mail address.
        """
        for member_id, member in self.db.members.items():
            if member.email == email:
                return member_id
        raise ValueError("Member not found")

    @is_tool(ToolType.READ)
    def get_member(self, member_id: str) -> Member:
        """
        Look a member up.

        Args:
            member_id: The member's id.
        """
        if member_id not in self.db.members:
            raise ValueError("Member not found")
        return self.db.members[member_id]

    @is_tool(ToolType.READ)
    def list_items(self, grade: Grade | None = None) -> list[Item]:
        """
        List items.

        Args:
            grade: Only items of this grade.
        """
        return [item for item in self.db.items.values() if grade in (None, item.grade)]

    @is_tool(ToolType.WRITE)
    def rent_item(self, member_id: str, item_id: str, days: int = 1) -> Rental:
        """
        Rent an item out.

        Args:
            member_id: Who rents.
            item_id: What.
            days: For how long.
        """
        member = self.db.members[member_id]
        found = [item for item in self.db.items.values() if item.item_id == item_id]
        found[0].status = "out" if found[0].status == "in" else self._refuse("The item is out")
        member.balance_usd = round(member.balance_usd - found[0].usd_per_day * days - self.db.fee_usd, 2)
        if member.balance_usd < 0:
            raise ValueError("The balance does not cover that")
        self.served += 1
        rental = Rental(
            rental_id=f"R-{uuid4().hex[:8]}",
            member_id=member_id,
            item_id=item_id,
            started_at=datetime.now(timezone.utc),  # noqa: UP017 - as the reference's own
            due_on=(date.today() + timedelta(days=days)).isoformat(),
            locker=random.randint(1, 500),
        )
        self.db.rentals[rental.rental_id] = rental
        return rental

    def _refuse(self, why: str) -> str:
        raise ValueError(why)

    @is_tool(ToolType.WRITE)
    def annotate(self, member_id: str, note: str, tags: list[str]) -> Member:
        """
        Write on a member's card. Long notes are refused, after they were written.

        Args:
            member_id: Whose card.
            note: What to write.
            tags: Tags to put on it.
        """
        member = self.db.members[member_id]
        member.notes.append(note)
        member.tags.update(tags)
        self.db.holidays.append(note)
        self.db.hours[note] = note
        self.log.append(note)
        if len(note) > 40:
            raise RuntimeError("A note has at most 40 characters")
        self.db.holidays.remove(note)
        del self.db.hours[note]
        return member

    @is_tool(ToolType.WRITE)
    def close_on(self, day: str) -> list[str]:
        """
        Close the depot for a day.

        Args:
            day: Which day.
        """
        self.db.holidays = sorted([*self.db.holidays, day])
        return self.db.holidays

    @is_tool(ToolType.WRITE)
    def discard(self, item_id: str) -> str:
        """
        Take an item out of the books.

        Args:
            item_id: What.
        """
        gone = self.db.items.pop(item_id)
        self.db.rentals = {key: r for key, r in self.db.rentals.items() if r.item_id != item_id}
        return gone.name

    @is_tool(ToolType.READ)
    def stop_everything(self) -> str:
        """Ask the process to end."""
        raise SystemExit("the depot closes")

    @is_tool(ToolType.READ)
    def stamps(self) -> str:
        """Say what time it is, and draw lots, in every way."""
        import datetime as inside
        from datetime import datetime as again

        born = self.db.items["I-1"].bought_at
        return json.dumps(
            {
                "now": str(datetime.now()),
                "utcnow": str(datetime.utcnow()),
                "today": str(date.today()),
                "module": str(dt.datetime.today()),
                "inside": str(inside.datetime.now()),
                "again": str(again.now()),
                "zone": str(dt.datetime.now(dt.timezone(dt.timedelta(hours=2)))),
                "stamp": datetime.now().timestamp(),
                "born": born.timestamp(),
                "is_datetime": isinstance(born, datetime) and isinstance(datetime.now(), date),
                "age_days": (datetime.now() - born).days,
                "time": time.time(),
                "seconds": now_seconds(),
                "struct": time.strftime("%Y-%m-%d %H:%M:%S"),
                "local": time.localtime().tm_hour,
                "monotonic": time.monotonic() == time.perf_counter(),
                "imported": str(IMPORTED_AT),
                "parsed": str(datetime.strptime("2020-02-03", "%Y-%m-%d") + timedelta(days=1)),
                "lots": [random.random(), choice("abcdef"), random.Random().random(), random.SystemRandom().random()],
                "ids": [str(uuid4()), str(uuid.uuid4()), str(uuid.uuid1()), str(uuid.uuid5(uuid.NAMESPACE_DNS, "a"))],
                "secrets": [secrets.token_hex(4), secrets.randbelow(1000), os.urandom(3).hex()],
            }
        )

    @is_tool(ToolType.GENERIC)
    def calculate(self, expression: str) -> str:
        """
        Calculate.

        Args:
            expression: Numbers, + - * / and parentheses.
        """
        return str(round(float(eval(expression, {"__builtins__": None}, {})), 2))

    @is_tool(ToolType.GENERIC)
    def transfer_to_human_agents(self, summary: str) -> str:
        """
        Hand the user over.

        Args:
            summary: What it is about.
        """
        return "Transfer successful"
