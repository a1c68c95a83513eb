"""The clinic's tools: annotations as text, imports from beside, records found by looking through all of them."""

from __future__ import annotations

import random
import time
from typing import Tuple  # noqa: UP035

from tau2.environment.toolkit import ToolKitBase, ToolType, is_tool

from .data_model import ClinicDB, Event, Patient, Visit

CANCELLING_USD = 15


class BaseTools(ToolKitBase):
    """What clinics have in common."""

    @is_tool(ToolType.GENERIC)
    def transfer_to_human_agents(self, summary: str) -> str:
        """
        Hand the patient over.

        Args:
            summary: What it is about.
        """
        return "Transfer successful"


class ClinicTools(BaseTools):
    """Tools of the clinic."""

    db: ClinicDB

    def _find(self, visit_id: str) -> Tuple[Patient, Visit]:  # noqa: UP006
        for patient in self.db.patients.values():
            if visit_id in patient.visits:
                return patient, patient.visits[visit_id]
        raise KeyError(visit_id)

    @is_tool(ToolType.READ)
    def get_patient(self, patient_id: str) -> Patient:
        """
        Look a patient up.

        Args:
            patient_id: Which one.
        """
        return self.db.patients[patient_id]

    @is_tool(ToolType.READ)
    def count_visits(self, patient_id: str, since: str | None = None) -> int:
        """
        Count visits.

        Args:
            patient_id: Whose.
            since: The first day that counts.
        """
        return sum(visit.day >= (since or "") for visit in self.db.patients[patient_id].visits.values())

    @is_tool(ToolType.WRITE)
    def book_visit(self, patient_id: str, day: str, reason: str) -> Visit:
        """
        Book a visit.

        Args:
            patient_id: For whom.
            day: When.
            reason: Why.
        """
        visit_id = f"V-{random.randrange(1000, 10000)}"
        made_at = time.strftime("%Y-%m-%dT%H:%M")
        visit = Visit(visit_id=visit_id, day=day, reason=reason, status="booked", made_at=made_at)
        self.db.diary.append(Event(at=time.time(), text=f"{visit_id} booked"))
        self.db.patients[patient_id].visits[visit_id] = visit
        return visit

    @is_tool(ToolType.WRITE)
    def cancel_visit(self, visit_id: str, reason: str | None) -> str:
        """
        Cancel a visit.

        Args:
            visit_id: Which one.
            reason: Why, if the patient says so.
        """
        patient, visit = self._find(visit_id)
        visit.status = "cancelled"
        patient.owes_usd += CANCELLING_USD
        self.db.diary.append(Event(at=time.time(), text=f"{visit_id} cancelled"))
        return f"The patient owes {patient.owes_usd:.0f}"
