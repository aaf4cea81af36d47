"""One broker's logs on disk, in Kafka's file formats. `docs/storage.md` tells what is in which file, and when.

`Log` is one partition, `LogManager` a data folder of them. Storage knows record batches by their headers; it knows
nothing of the wire protocol, nor of sockets.
"""

from barnabas.storage.append import AppendInfo
from barnabas.storage.filesystem import FileSystem, OsFileSystem
from barnabas.storage.log import Log
from barnabas.storage.log_config import LogConfig
from barnabas.storage.log_manager import LogManager

__all__ = ["AppendInfo", "FileSystem", "Log", "LogConfig", "LogManager", "OsFileSystem"]
