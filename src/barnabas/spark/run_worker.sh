#!/bin/sh
# Stands in for the Python of Spark's workers, and becomes it: see fast_worker_start.py for why and when.
#
# _BARNABAS_WORKER_PYTHON is that Python, _BARNABAS_WORKER_PYSPARK the folder of the PySpark that is installed in it. Where
# Spark runs from that folder, the archives below it are the same PySpark once more, packed, and leave the path.
set -f
if [ "$SPARK_HOME" -ef "$_BARNABAS_WORKER_PYSPARK" ]; then
  path=
  IFS=:
  for entry in $PYTHONPATH; do
    case $entry in
      "$SPARK_HOME"/*) ;;
      *) path=${path:+$path:}$entry ;;
    esac
  done
  export PYTHONPATH="$path"
fi
exec "$_BARNABAS_WORKER_PYTHON" "$@"
