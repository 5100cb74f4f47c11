"""Many jobs in a row whose reservations follow from those of the plan before: that is most of a plan."""

from bisect import insort
from heapq import heappush

from headway.training.policies.backfills.before import Slot, following
from headway.training.policies.backfills.hopes import Hopes
from headway.training.policies.backfills.region import Region
from headway.training.policies.backfills.slots import Slots
from headway.training.policies.backfills.whole_nodes import WholeNodes
from headway.training.queue import Entry


def keep(region: Region, profile: WholeNodes, slots: Slots, hopes: Hopes, until: Entry | None) -> bool:
    """Give the next jobs of a region what follows from their reservations in the plan before, as long as it does and
    somebody could start; return whether less could start for it, or another region may come first now.

    ``until`` is the job of another region at whose turn to stop.
    """
    if region.only_time() < 0 or region.made is None:
        return False
    before, unplanned, first, lost = region.before, hopes.unplanned[region.nodes], region.next, False
    while region.has_left and before.seek(region.put_off[region.next], unplanned):
        place = region.next
        if _keep_in_a_row(region, region.made, profile, slots, hopes, until):
            lost = True
        if region.next == place or not hopes.regions.get(region.nodes):
            break
    return lost or (until is not None and region.next > first)


def _keep_in_a_row(
    region: Region, made: list[Slot], profile: WholeNodes, slots: Slots, hopes: Hopes, until: Entry | None
) -> bool:
    """Do so with jobs that come as they did."""
    before, now, differs, intervals = region.before, region.only_time(), region.before.differs, profile.intervals
    by_job, starts, left = slots.by_job, slots.starts, slots.left
    lengths, shapes, unplanned = hopes.lengths, hopes.shapes, hopes.unplanned[region.nodes]
    hopeful, lost, count = hopes.nodes_of(region.nodes), False, len(made)
    for slot, js in zip(before.ahead(), region.ahead(), strict=False):
        job = js.id
        if slot.js is not js or slot.end - slot.start != lengths[job] or (until is not None and (js.key, job) > until):
            break
        found = following(now, slot, differs, profile)
        if found is None:
            break
        _, start, end, parts, nodes, _, _ = found
        if found is not slot:
            before.note(slot, found, nodes)
        made.append(found)
        for node, _ in parts:
            insort(intervals[node], (start, end))
        profile.changed |= nodes
        if job not in left:
            by_job[job] = found
            heappush(starts, (start, job))
        if not (nodes & hopeful or hopes.has(shapes[job])):
            unplanned.discard(job)
        elif hopes.planned(job, region.nodes, nodes):
            lost = True
            hopeful = hopes.nodes_of(region.nodes)
            if not hopeful:
                break
    count = len(made) - count
    before.pass_over(count)
    region.next += count
    return lost
