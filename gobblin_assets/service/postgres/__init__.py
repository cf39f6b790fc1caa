"""The service's stores in Postgres, in a schema of their own, ``gobblin_service``, with migrations of their own.

    flow             each flow that was ever made: its state, its latest version, when it was deleted
    flow_version     each version of a flow: its config, the versions of packs that it has pinned
    flow_job         the names of a flow's jobs, and what each is bound to; for ever
    flow_execution   one run of a flow; at most one of a flow is open, beside those that overlap or were adopted
    job_execution    one job of an execution: its ticket, its status, up to which report it was read
    adopted_log      up to which of the tickets that its executors began by themselves each log was read
    request          keys of requests, so that one that is sent again makes nothing new
    template_pack    each version of a pack of job templates; for ever
    topology_entry   nodes and executors, where no file has them
    catalog_change   the number of the last change of each catalog

Each write of a catalog raises its number in the same transaction, and holds that row until it commits. So numbers are
in the order of commits, and a reader that has seen a number has seen all changes up to it.
"""
