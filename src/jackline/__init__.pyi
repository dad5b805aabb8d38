from jackline.agents.outcome import Outcome as Outcome
from jackline.batches.api import batch as batch
from jackline.budgets.budget import Budget as Budget
from jackline.errors import FlowError as FlowError
from jackline.errors import JacklineError as JacklineError
from jackline.errors import UsageError as UsageError
from jackline.flows.api import resume as resume
from jackline.flows.api import run as run
from jackline.flows.authoring.calls import Batch as Batch
from jackline.flows.authoring.calls import agent as agent
from jackline.flows.authoring.calls import parallel as parallel
from jackline.flows.authoring.calls import phase as phase
from jackline.flows.authoring.calls import step as step
from jackline.flows.authoring.context import ctx as ctx
from jackline.flows.authoring.flow_definition import flow as flow

__version__: str
__all__: list[str]

def __getattr__(name: str) -> object: ...
def __dir__() -> list[str]: ...
