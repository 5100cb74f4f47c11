"""What tests of a machine's GPUs and locks start from: the same as those of sharing."""

from tests.gpu.share.conftest import _apart as _apart, control as control, place as place, short as short
