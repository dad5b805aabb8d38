"""Wire one running process; the only place that constructs the rooms.

Laws: (1) what is opened is closed again, in reverse order, however the process ends in good order.
Not here: what the parts do (the rooms below), the command line (cli/).
"""

from jackline.assembly.addresses import local_url
from jackline.assembly.service import CannotListenError, Service
from jackline.assembly.state_dir import Running, StateDir

__all__ = ["CannotListenError", "Running", "Service", "StateDir", "local_url"]
