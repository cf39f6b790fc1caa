"""Executors as the service reaches them: one port, one contract, and a kind for each communication.

``spec_executor`` has the port that a SpecExecutor of Gobblin was, and its implementation over a ``TicketWire``.
``wire_kinds`` opens the wire of each way by the executor's communication.
"""
