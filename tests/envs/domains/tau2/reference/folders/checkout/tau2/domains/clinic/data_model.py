"""What the clinic knows: records inside records, and a list where others have a table."""

from typing import Dict, List, Optional  # noqa: UP035 - as the reference's own

from pydantic import BaseModel, ConfigDict
from tau2.environment.db import DB


class Visit(BaseModel):
    """One visit; `status` is checked when it is set."""

    model_config = ConfigDict(validate_assignment=True)

    visit_id: str
    day: str
    reason: str
    status: str
    made_at: Optional[str] = None  # noqa: UP045


class Patient(BaseModel):
    """A patient with all visits."""

    patient_id: str
    name: str
    owes_usd: float
    visits: Dict[str, Visit]  # noqa: UP006


class Event(BaseModel):
    """A line of the clinic's diary."""

    at: float
    text: str


class ClinicDB(DB):
    """Patients, and the diary."""

    patients: Dict[str, Patient]  # noqa: UP006
    diary: List[Event]  # noqa: UP006
