"""Who runs which task where, when, and with what: one module a policy, by the names in ``registry``."""
