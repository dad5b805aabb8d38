from jackline.agents.outcome import Outcome as Outcome
from jackline.batches.door import batch as batch
from jackline.budgets.budget import Budget as Budget
from jackline.errors import FlowError as FlowError
from jackline.errors import JacklineError as JacklineError
from jackline.errors import UsageError as UsageError
from jackline.flows.authoring import agent as agent
from jackline.flows.authoring import phase as phase
from jackline.flows.authoring import step as step
from jackline.flows.context import ctx as ctx
from jackline.flows.definition import flow as flow
from jackline.flows.doors import resume as resume
from jackline.flows.doors import run as run
from jackline.flows.parallel import Batch as Batch
from jackline.flows.parallel import parallel as parallel

__version__: str
__all__: list[str]

def __getattr__(name: str) -> object: ...
def __dir__() -> list[str]: ...
