"""What the settings of replication say of themselves."""

from __future__ import annotations

from orbitmq.replication.settings import BrokerKind, ReplicationSettings


def test_an_asynchronous_master_says_which_numbers_of_copies_it_does_not_heed() -> None:
    asks = ReplicationSettings(total_replicas=3, in_sync_replicas=2, min_in_sync_replicas=2)
    assert asks.unheeded == "inSyncReplicas = 2, minInSyncReplicas = 2"
    assert asks.as_kind(BrokerKind.SYNC_MASTER).unheeded == ""
    assert ReplicationSettings().unheeded == ""
