"""dbt's plugin for Millstream."""

from dbt.adapters.base import AdapterPlugin
from dbt.include import millstream

from .connections import MillstreamCredentials
from .impl import MillstreamAdapter

Plugin = AdapterPlugin(
    adapter=MillstreamAdapter,
    credentials=MillstreamCredentials,
    include_path=millstream.PACKAGE_PATH,
)
