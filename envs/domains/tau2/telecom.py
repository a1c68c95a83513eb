"""What the package's telecom leaves to chance or shares: ids of new bills, and the VPN that every phone would have."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

_HEX = 8


class SteadyIds:
    """Put before the package's TelecomTools: a bill opened in an episode is named by its customer, not by uuid4."""

    if TYPE_CHECKING:
        db: Any

    def _apply_one_time_charge(self, customer_id: str, amount: float, description: str) -> None:
        before = len(self.db.bills)
        super()._apply_one_time_charge(customer_id, amount, description)  # type: ignore[misc]
        if len(self.db.bills) == before:
            return
        bill = self.db.bills[-1]
        customer = next(c for c in self.db.customers if c.customer_id == customer_id)
        number = customer.bill_ids.index(bill.bill_id)
        bill.bill_id = f"B{hashlib.sha256(f'{customer_id}/{number}'.encode()).hexdigest()[:_HEX]}"
        customer.bill_ids[number] = bill.bill_id


class OwnVpn:
    """Put before the package's TelecomUserTools: each phone has a VPN of its own. The package gives all phones of a
    process one object, and whoever breaks it breaks it for the next episode too."""

    default_vpn_details: Any

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.default_vpn_details = self.default_vpn_details.model_copy()
