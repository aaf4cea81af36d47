"""The logs of one broker on disk, in Kafka's file formats.

`docs/explanation/storage.md` describes each file, and when it is written.

`Log` is the log of one partition, `LogManager` manages the logs of one data directory. This package reads the headers
of record batches. It uses neither the wire protocol nor sockets.
"""

from barnabas.storage.filesystem import FileSystem, OsFileSystem
from barnabas.storage.log import Log
from barnabas.storage.log_appender import AppendInfo
from barnabas.storage.log_config import LogConfig
from barnabas.storage.log_manager import LogManager

__all__ = ["AppendInfo", "FileSystem", "Log", "LogConfig", "LogManager", "OsFileSystem"]
