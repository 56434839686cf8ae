"""Trace files as files: one safetensors file, a JSON header beside the tensors, written whole and mapped on demand.

This layer knows names, tensors and a JSON object; what they mean is known where traces are saved and opened.
`write` is in `engine.tracewriter`, `read` in `engine.tracereader`, and the bytes they agree on are described in
`engine.traceformat`.

A file is ordinary safetensors, which any reader of that format understands. The safetensors library itself neither
writes nor reads it here, since it does not

- keep checksums: a changed byte would be a changed number, and nobody would know;
- write atomically: a full disk or Ctrl-C would leave half a file, or half of the one that was to be replaced;
- judge a header before it is allocated and parsed: whatever lies there, up to 100 MB, is taken for one;
- leave tensors alone until they are asked for: it needs torch to open a file, and describes all tensors at once;
- take tensors as they are: it refuses views that are not contiguous, and tensors that share memory, of which we
  store one and name it twice.

Nor can these be added around it: it lays out a file and writes it in one call, and tells no offsets to a reader.
"""

from engine.traceformat import MAX_HEADER_BYTES as MAX_HEADER_BYTES
from engine.traceformat import VERSION as VERSION
from engine.traceformat import Rows as Rows
from engine.traceformat import expect as expect
from engine.tracereader import Tensors as Tensors
from engine.tracereader import read as read
from engine.tracewriter import check_target as check_target
from engine.tracewriter import write as write
