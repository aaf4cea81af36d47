#!/bin/sh
# Builds the record codec, the batch header scan and log compaction with gcc's address and undefined-behaviour
# sanitizers in a temporary folder. Then runs their tests and the comparison with their pure Python twins. A read outside
# of a buffer ends the run with a report.
#
#   tools/sanitize_codec.sh [EXAMPLES]     examples for each property [20,000]
set -eu
cd "$(dirname "$0")/.."
. tools/say.sh
examples=${1:-20000}
command -v gcc >/dev/null || die "this needs gcc"
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

python=$PWD/.venv/bin/python
"$python" -c 'import Cython' 2>/dev/null || "$python" -m pip install --quiet Cython
suffix=$("$python" -c 'import sysconfig; print(sysconfig.get_config_var("EXT_SUFFIX"))')
include=$("$python" -c 'import sysconfig; print(sysconfig.get_paths()["include"])')
cp -R src "$folder/src"
rm -f "$folder"/src/barnabas/records/*_compiled*.so
for module in codec_compiled scan_compiled compaction_compiled; do
    "$python" -m cython -3 "src/barnabas/records/$module.pyx" -o "$folder/$module.c"
    # Python itself has misaligned accesses and signed shifts that this sanitizer would report.
    gcc -g -O1 -fPIC -shared -fno-omit-frame-pointer -fsanitize=address,undefined -fno-sanitize=alignment,shift \
        -fno-sanitize-recover=undefined -I"$include" "$folder/$module.c" \
        -o "$folder/src/barnabas/records/$module$suffix"
done

# PyMem's pools would hide faults from the sanitizer, and the interpreter leaks on purpose when it ends.
PYTHONPATH=$folder/src PYTHONMALLOC=malloc ASAN_OPTIONS=detect_leaks=0 BARNABAS_CODEC=compiled \
    LD_PRELOAD="$(gcc -print-file-name=libasan.so) $(gcc -print-file-name=libstdc++.so)" \
    PARITY_EXAMPLES=$examples "$python" -m pytest -q -p no:cacheprovider --timeout=3600 \
    tests/unit/records/test_codec.py tests/unit/records/test_reader.py tests/unit/records/test_scan.py \
    tests/unit/records/test_compaction.py tests/properties/test_compaction.py tests/properties/test_codec_parity.py \
    tests/properties/test_scan_parity.py tests/properties/test_records_round_trip.py
