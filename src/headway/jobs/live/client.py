"""Ask the queue of this user, over its local socket."""

from typing import Any

import msgspec

from headway.door.frames import Frames, framed
from headway.door.local_socket import connected, is_own
from headway.errors import QueueError
from headway.jobs.live.messages import ANSWERS, MOST_BYTES, Question, Refused
from headway.jobs.live.place import Place

WAIT_S = 60.0
_CHUNK = 1 << 16


def ask(place: Place, question: Question, timeout_s: float = WAIT_S) -> Any:
    """Return the answer to a question; QueueError where no queue runs, or it refuses."""
    try:
        with connected(place.socket, timeout_s) as connection:
            if not is_own(connection):
                raise QueueError(f"{place.socket} is answered by another user: take a --folder of your own")
            connection.sendall(framed(question))
            frames = Frames(ANSWERS, MOST_BYTES)
            while data := connection.recv(_CHUNK):
                for answer in frames.feed(data):
                    if isinstance(answer, Refused):
                        raise QueueError(answer.reason)
                    return answer.value
    except TimeoutError:
        raise QueueError(f"the queue in {place.folder} does not answer: {place.log} may say why") from None
    except (msgspec.MsgspecError, ValueError):
        raise QueueError(f"the queue in {place.folder} is of another version of headway: stop and start it") from None
    except PermissionError:
        raise QueueError(f"the queue in {place.folder} is another user's") from None
    except OSError:
        raise QueueError(f"no queue runs in {place.folder}: {place.how_to_start}") from None
    raise QueueError("the queue ended before it answered: headway queue list shows whether it was done")
