"""Flows as a service: what data shall be where, from its description to rows.

    FlowConfig ──create──▶ FlowSpec ──compile──▶ FlowPlan ──launch──▶ flow execution ──tickets──▶ executors
                                                     ▲                      │
                                    templates, topology                     └─◀── reports of the tickets

A person describes a flow: a source node, destination nodes, parameters. The compiler finds job templates and executors
whose jobs bring the data there, hop by hop. A launch makes an execution, and a ticket for each job. Executors take
tickets from their commit log, run the jobs, and report. The monitor folds reports into the statuses of jobs and flows.

The service knows no Dagster and no Spark. What only an executor can check is checked when it claims a ticket.
"""
