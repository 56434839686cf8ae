"""Trace files as files: one safetensors file, a JSON header beside the tensors, written whole and mapped on demand.

This layer knows names, tensors and a JSON object; what they mean is known where traces are saved and opened.
`write` is in `engine.tracewriter`, `read` in `engine.tracereader`, and the bytes they agree on are described in
`engine.traceformat`.

A file is ordinary safetensors, which any reader of that format understands, and yet the safetensors library
neither writes nor reads it here, since it does not

- keep checksums: a changed byte would be a changed number, and nobody would know;
- write atomically: a full disk or Ctrl-C would leave half a file, or half of the one that was to be replaced;
- check before it allocates: a header of a length that was changed is held in memory to find that it is wrong;
- leave the tensors alone: `save_file` wants copies of views and of tensors that share memory, where we store one
  and name it twice, and opening reads the table of all tensors, where we check a tensor's when it is asked for.

Nor could it put these on top of itself: it lays out a file and writes it in one call, and tells no offsets.
"""

from engine.tracereader import Tensors as Tensors
from engine.tracereader import read as read
from engine.traceformat import MAX_HEADER_BYTES as MAX_HEADER_BYTES
from engine.traceformat import VERSION as VERSION
from engine.traceformat import expect as expect
from engine.tracewriter import check_target as check_target
from engine.tracewriter import write as write
