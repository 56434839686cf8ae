"""Decoding by a step that is compiled: the same program, one token, on tensors whose sizes and addresses stay.

Keys and values lie in buffers of a fixed capacity, and positions tell which of their rows are filled: the others have
the position of padding, so the one mask hides them. Nothing in the step looks at a number on the host. It is traced
once, as the operations of torch that it comes to; "torch" has them compiled by torch's inductor, "graphs" recorded as a
CUDA graph. Records equal those of a plain pass to rounding; so does what is derived from them, by plain steps.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import torch
from jaxtyping import Int, Shaped
from torch import Tensor

from engine.cache import BLOCK, Appending, Held
from engine.decoding import KEYS, Decoder
from engine.errors import CompileError, KernelError, PromptError, is_out_of_memory
from engine.model import Model
from engine.ops.base import PassInfo
from engine.ops.edited import Edited
from engine.ops.mask import PADDING
from engine.ops.rotary import regime
from engine.plan import Keep
from engine.runner import computing, prepare
from engine.runtime import Watch
from engine.sites import Site
from engine.text import display
from engine.traces import Trace

Compile = Literal["no", "torch", "graphs"]
"""How passes over one token run: step by step, compiled by torch's inductor, or as a CUDA graph."""
MOST_COMPILED = 8
"""Steps that are held for a model, each some megabytes of code: one for every size and choice of what to keep."""
_Function = Callable[..., Sequence[Tensor]]


def decoder(
    model: Model, before: Trace, *, keep: Keep = "all", room: int | None = None, compile: Compile = "no"
) -> Decoder:
    """A decoder whose passes over one token run as ``compile`` says; errors as `check` and `Decoder` have them."""
    if compile == "no":
        return Decoder(model, before, keep=keep, room=room)
    return CompiledDecoder(model, before, keep=keep, room=room, compile=compile)


def check(model: Model, compile: Compile, kernel: str) -> None:
    """Raise PromptError, CompileError or KernelError where passes of the model cannot run as ``compile`` says."""
    if compile not in get_args(Compile):
        raise PromptError(f"compile must be no, torch or graphs, but is {display(repr(compile))[:80]}")
    device = model.device.type
    if compile == "graphs" and device != "cuda":
        raise CompileError(f'compile="graphs" records a CUDA graph, and {model.name} is on the {device}; use "torch"')
    if compile != "no" and device == "cpu" and kernel not in ("auto", "math"):
        raise KernelError(f"kernel {kernel!r} cannot be compiled on the cpu; use kernel auto or math")
    if compile == "torch" and device == "cpu":
        try:
            from torch._inductor.cpp_builder import get_cpp_compiler

            get_cpp_compiler()
        except Exception:  # torch has several, by system
            raise CompileError(
                'compile="torch" needs a C++ compiler, and torch found none; install g++ or clang, or use "no"'
            ) from None


class CompiledDecoder(Decoder):
    """Goes on from a trace; passes over one token run as one step of fixed size, which is made at the first of them.

    ``compile="no"`` runs that step as it is, which is of use to tests alone. On the CPU its attention is plain
    arithmetic ("math"), since the fused kernel loses NaN. A layer with a sliding window keeps all positions here, and
    those that the window has passed are hidden; of experts all run, and those that were not chosen are left out. Where
    the capacity is used up, where rotary scaling turns by other angles from here on, or after a pass over several
    tokens, a new step is made; where angles change with every position, passes run plainly.
    """

    def __init__(
        self, model: Model, before: Trace, *, keep: Keep = "all", room: int | None = None, compile: Compile = "no"
    ) -> None:
        check(model, compile, before.passes[-1].info.kernel)
        super().__init__(model, before, keep=keep, room=room)
        self._compile = compile
        self._step: _Step | None = None
        self._by_position = any(isinstance(s.op, Edited) and s.op.by_position for s in self.model.program.steps)

    def _run(
        self, given: dict[str, Tensor], appending: Appending, info: PassInfo, watch: Watch | None
    ) -> dict[str, Tensor]:
        if given["tokens"].shape[1] > 1:
            return super()._run(given, appending, info, watch)
        regimes = tuple(regime(rotary, extent) for rotary in self._turning for extent in info.extents)
        for rotary in self._turning:
            if rotary.scaling == "dynamic" and max(info.extents) > (last := rotary.original_n_ctx or 0):
                self._say(f"beyond {last} positions passes run uncompiled, since the rotary angles change with each")
                return super()._run(given, appending, info, watch)
        if self._by_position:
            self._say("passes run uncompiled, since an edit is at positions, which a compiled pass does not know")
            return super()._run(given, appending, info, watch)
        step = self._step
        if step is None or step.stop != info.start or step.stop == step.capacity or step.regimes != regimes:
            if watch is not None:
                watch(0, 1, "compiling")
            room = self._room if step is None and self._room is not None else info.start // 2
            capacity = -(-(info.start + 1 + room) // BLOCK) * BLOCK
            step = _Step(self.model, self._kept, self._compile, given, appending.before, info, capacity, regimes)
        elif watch is not None:
            watch(0, 1, "a compiled step")
        made = step(given, info, appending.held)
        self._step = step
        return made


class _Step:
    """One pass over one token, for positions up to ``capacity``; the next runs at position ``stop``.

    Its inputs never move: the token's id and position, its slot in the buffers, and for each layer keys and values
    [1 capacity kv_head d_head] of which a row is written once. Records and caches look into them.
    """

    def __init__(
        self,
        model: Model,
        kept: Sequence[str],
        compile: Compile,
        given: Mapping[str, Tensor],
        before: Mapping[str, Held],
        info: PassInfo,
        capacity: int,
        regimes: tuple[int, ...],
    ) -> None:
        program = model.program
        self.capacity, self.stop, self.regimes = capacity, info.start, regimes
        self._program = program
        self._sites = {past: program.site(past) for past in program.caches}
        memory = {
            past: _filled(rows.rows.transpose(1, 2), 2, rows.start, capacity, 0) for past, rows in before.items()
        }  # [1 kv_head capacity d_head] each: the positions of one head lie side by side, as kernels read them
        # As they are full to others, nobody else appends there.
        self._buffers = {past: Held.of(rows.transpose(1, 2)).buffer for past, rows in memory.items()}
        self._slot = torch.tensor([self.stop], device=model.device)
        self._tokens, self._position = (given[name].clone() for name in ("tokens", "positions"))
        inputs = {
            **{name: tensor for name, tensor in given.items() if name not in memory},
            "tokens": self._tokens,
            "positions": self._position,
            KEYS: _filled(given[KEYS], 1, 0, capacity, PADDING),
            **memory,
        }
        self._inputs = (self._slot, *inputs.values())
        sites = tuple(dict.fromkeys((*kept, *(["logits"] if program.step("logits") else []))))
        key = (
            program,
            compile,
            sites,
            info.dtype,
            info.kernel,
            regimes,
            *((x.shape, x.stride()) for x in self._inputs),
        )
        with computing(program):
            traced = model.compiled.pop(key, None)
            if traced is None:
                traced = _traced(model, sites, tuple(inputs), self._inputs, info, compile)
            model.compiled[key] = self._traced = traced  # behind those that were used before
            for longest_unused in list(model.compiled)[:-MOST_COMPILED]:
                del model.compiled[longest_unused]
            self._function = _captured(traced.function, self._inputs) if compile == "graphs" else traced.function

    def __call__(self, given: Mapping[str, Tensor], info: PassInfo, held: dict[str, Held]) -> dict[str, Tensor]:
        """Run the pass that is given: what it made, as a plain pass; ``held`` gets what it attended to."""
        start, stop = self.stop, self.stop + 1
        self._tokens.copy_(given["tokens"])
        self._position.copy_(given["positions"])
        self._slot.fill_(start)
        with computing(self._program):
            outs = self._function(*self._inputs)
        self.stop = stop
        info.ran |= self._traced.ran
        made = {name: outs[i] for name, i in self._traced.places.items()}
        for site, dim in self._traced.over_keys:
            n = site.held(start) + 1
            made[site.name] = made[site.name].narrow(dim, stop - n, n).clone()
        for past, site in self._sites.items():
            n = site.held(start) + 1
            held[past] = rows = Held(self._buffers[past], stop - n, stop)
            made[self._program.caches[past]] = rows.rows
        return made


def _filled(x: Tensor, dim: int, start: int, capacity: int, value: int) -> Tensor:
    """A tensor of ``capacity`` along an axis, with ``x`` there from ``start`` on and ``value`` before and behind."""
    whole = x.new_full((*x.shape[:dim], capacity, *x.shape[dim + 1 :]), value)
    whole.narrow(dim, start, x.shape[dim]).copy_(x)
    return whole


@dataclass(frozen=True, slots=True, eq=False)
class _Traced:
    """The step as a function of its inputs, and where in its outputs the sites are: ``places`` by name.

    ``over_keys``: the sites with an axis over all keys, and which it is; ``ran``: the attention kernels.
    """

    function: _Function
    places: Mapping[str, int]
    over_keys: tuple[tuple[Site, int], ...]
    ran: frozenset[str]


def _traced(
    model: Model, sites: Sequence[str], names: Sequence[str], inputs: Sequence[Tensor], info: PassInfo, compile: Compile
) -> _Traced:
    """The step that makes ``sites``, traced by running it on these inputs, and compiled. The inputs are a slot, then
    those of the program by ``names``."""
    program, cpu = model.program, model.device.type == "cpu"
    caches = program.caches
    slots = torch.arange(inputs[1 + names.index(KEYS)].shape[1], device=model.device)  # [capacity]
    wanted = [name for name in sites if name not in caches.values()]
    prepared = prepare(program, model.weights, (*wanted, *caches.values()), names)
    static = PassInfo(info.dtype, False, "math" if cpu else info.kernel, extents=info.extents, static=True)

    def values(slot: Int[Tensor, " 1"], *tensors: Tensor) -> dict[str, Tensor]:
        given = dict(zip(names, tensors, strict=True))
        given[KEYS].index_copy_(1, slot, given["positions"])
        memory = {name: given[name] for name in caches}  # [1 kv_head capacity d_head] each
        given |= {name: rows.transpose(1, 2) for name, rows in memory.items()}
        past_of = {id(given[name]): name for name in caches}

        def append(past: Tensor, new: Tensor) -> Tensor:
            name = past_of[id(past)]
            memory[name].index_copy_(2, slot, new.transpose(1, 2))
            window = program.site(name).window
            if window is None or window >= len(slots):
                return past
            # A masked key's weight is 0, and 0 · NaN is not; a plain pass has let go of it.
            return past.where((slots > slot - window)[:, None, None], 0)

        static.append = append
        return prepared.run(given, static)

    made = values(*inputs)  # what depends on the device alone is made here and not in what is traced
    first: dict[int, int] = {}
    places = {name: first.setdefault(id(made[name]), len(first)) for name in wanted}  # each tensor once
    outs = [next(name for name in wanted if places[name] == i) for i in range(len(first))]

    def function(*tensors: Tensor) -> list[Tensor]:
        made = values(*tensors)
        return [made[name] for name in outs]

    over_keys = tuple((site, site.axes.index("key")) for site in map(program.site, wanted) if "key" in site.axes)
    return _Traced(_compiled(function, inputs, compile), places, over_keys, frozenset(static.ran))


def _compiled(function: _Function, inputs: Sequence[Tensor], compile: Compile) -> _Function:
    """A function as the operations that it comes to; with "torch" compiled. Raises CompileError."""
    from torch.fx.experimental.proxy_tensor import make_fx

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of torch to its own developers
            operations = make_fx(function)(*inputs)
            return _by_inductor(operations, inputs) if compile == "torch" else operations
    except Exception as error:
        if is_out_of_memory(error):
            raise
        reason = next((line for line in str(error).splitlines() if line.strip()), type(error).__name__)
        raise CompileError(
            f'this model\'s step cannot be compiled here ({display(reason)[:200]}); use compile="no"'
        ) from error


def _by_inductor(operations: torch.fx.GraphModule, inputs: Sequence[Tensor]) -> _Function:
    import torch._inductor

    for node in operations.graph.nodes:
        if str(node.target) == "mkldnn._linear_pointwise.default":  # it takes that for weights of its own layout only
            node.target, node.args = torch.ops.aten.linear.default, node.args[:3]
        elif str(node.target) == "aten.t.default" and node.args[0].op == "get_attr":  # a weight: once, not in each pass
            name = f"{node.args[0].target}_t"
            operations.register_buffer(name, getattr(operations, node.args[0].target).t())
            node.op, node.target, node.args = "get_attr", name, ()
    operations.graph.eliminate_dead_code()
    operations.recompile()
    # In this process, without asking at each call what cannot have changed. What it compiled it keeps on the disk.
    options: dict[str, Any] = {"compile_threads": 1, "size_asserts": False, "alignment_asserts": False}
    function: _Function = torch._inductor.compile(operations, list(inputs), options=options)
    return function


def _captured(function: _Function, inputs: Sequence[Tensor]) -> _Function:
    """A function as a CUDA graph of these inputs. Its results are new tensors in each run."""
    with torch.cuda.device(inputs[0].device):
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):  # libraries make their workspaces before anything is captured
            for _ in range(3):
                outs = function(*inputs)
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            packed = pack(function(*inputs))

    def replay(*_: Tensor) -> list[Tensor]:
        graph.replay()
        return unpack({dtype: flat.clone() for dtype, flat in packed.items()}, outs)

    return replay


def pack(tensors: Sequence[Tensor]) -> dict[torch.dtype, Shaped[Tensor, " numbers"]]:
    """All numbers of one dtype in one tensor, so that a single copy takes them out of what the next run overwrites."""
    flat: dict[torch.dtype, list[Tensor]] = {}
    for tensor in tensors:
        flat.setdefault(tensor.dtype, []).append(tensor.reshape(-1))
    return {dtype: torch.cat(parts) for dtype, parts in flat.items()}


def unpack(packed: Mapping[torch.dtype, Shaped[Tensor, " numbers"]], like: Sequence[Tensor]) -> list[Tensor]:
    """The tensors that were packed, shaped as ``like``; views."""
    sizes: dict[torch.dtype, list[int]] = {}
    for tensor in like:
        sizes.setdefault(tensor.dtype, []).append(tensor.numel())
    parts = {dtype: iter(flat.split(sizes[dtype])) for dtype, flat in packed.items()}
    return [next(parts[tensor.dtype]).view(tensor.shape) for tensor in like]
