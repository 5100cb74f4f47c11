"""Run a policy in the shadow of a cluster that somebody else schedules: decide, carry nothing out, count what it saves.

``records`` gathers what was seen of the real jobs, ``world`` plays them under the policy as far as they are known,
``savings`` holds what came of it against what really happened, ``folder`` keeps all of it.
"""
