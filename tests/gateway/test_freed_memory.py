"""What one prompt's memory was is there for the next one, where the C library allows it."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

from jackline.gateway.listener import keep_freed_memory

# A wave of prompts, as many at once as a fleet sends, comes and goes again and again.
FAULTS_OF_LATER_WAVES = """
import resource
from jackline.gateway.listener import keep_freed_memory
if {keeps}:
    keep_freed_memory()
def wave():
    prompts = [bytes([number]) * 150_000 for number in range(32)]
    del prompts
def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt
wave()
wave()
before = faults()
for _ in range(20):
    wave()
print(faults() - before)
"""


def faults(*, keeps: bool) -> int:
    program = FAULTS_OF_LATER_WAVES.format(keeps=keeps)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    return int(done.stdout)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc gives it back")
def test_a_wave_of_prompts_fetches_no_memory_that_the_wave_before_has_left() -> None:
    of_one_wave = 32 * 150_000 // 4096
    assert faults(keeps=True) < of_one_wave
    assert faults(keeps=False) > 5 * of_one_wave, "else there is nothing to mend any more"


def test_asking_twice_or_elsewhere_does_no_harm() -> None:
    assert keep_freed_memory() is keep_freed_memory()
