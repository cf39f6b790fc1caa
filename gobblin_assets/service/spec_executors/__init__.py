"""Executors as the service reaches them: one port, one contract, and a kind for each communication.

``spec_executor`` has the port that a SpecExecutor of Gobblin was, and its implementation over a ``TicketWire``; ``wires``
opens the wire of each way by the executor's communication. A kind is one module and one registration:

    log      ``database``: tables of the executor's log, which the service reaches
"""
