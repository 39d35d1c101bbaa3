"""Core messaging: connections in, plans, deliveries out. Start at `broker.Broker`; the hot loop is in `hot`."""
