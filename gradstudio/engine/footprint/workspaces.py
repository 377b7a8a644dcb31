"""The internal memory of kernels, if it is large and known: what a convolution, a batch norm or an LSTM on the CPU
allocates and releases before it returns, and what an LSTM saves for its backward pass. Measured with torch 2.13 on a
processor with AVX-512; for the LSTM according to oneDNN's source (`src/cpu/rnn`)."""

from __future__ import annotations

from typing import Any, NamedTuple

from torch import Tensor

from gradstudio.engine.torch_internals import memory_and_work

_LINE = 16  # floats in a cache line of the processor, to which oneDNN rounds up
_PAGE = 4096  # bytes, to which it rounds each part of a workspace
_SMALLEST = 8  # channels of its smallest block
_FEW = 3  # channels of an image that it reads without reordering


def workspace(name: str, args: tuple[Any, ...], results: Any) -> int:
    """Return the bytes that an operation uses besides its results. oneDNN copies its tensors into its own order; for an
    unsupported format, torch unfolds the inputs, one column for each position of the kernel."""
    match name:
        case "convolution":
            inputs, weight = args[0], args[1]
            if memory_and_work.convolved_by_onednn(inputs.dtype):
                return _inputs(inputs) + _kernels(weight) + _picture(results) - results.nbytes
            return _columns(inputs, weight, results)
        case "convolution_backward":
            gradient, inputs, weight = args[0], args[1], args[2]
            if memory_and_work.convolved_by_onednn(inputs.dtype):
                return _backward(gradient, inputs, weight) if args[-1][0] else _inputs(inputs) + _picture(gradient)
            return _columns(inputs, weight, gradient)
        case "native_batch_norm_backward" if args[1].ndim == 2:
            return args[1].nbytes
        case "mkldnn_rnn_layer":
            return _Lstm.of(args[0], results[0]).forward
        case "mkldnn_rnn_layer_backward":
            gradients = args[10:13]  # of the outputs and both states, None if the loss does not use them
            copied = 0 if gradients[0] is None or gradients[0].is_contiguous() else gradients[0].nbytes
            zeros = sum(like.nbytes for like, each in zip(args[7:10], gradients, strict=True) if each is None)
            return copied + zeros + _Lstm.of(args[0], args[7]).backward
    return 0


def hidden_result(name: str, args: tuple[Any, ...], results: Any) -> tuple[Tensor, int] | None:
    """Return a result that is larger than its shape says, and its size; None if there is none."""
    if name != "mkldnn_rnn_layer":
        return None
    return results[3], _Lstm.of(args[0], results[0]).saved


def _columns(inputs: Tensor, weight: Tensor, outputs: Tensor) -> int:
    return inputs.shape[0] * weight[0].numel() * outputs.shape[2:].numel() * inputs.element_size()


def _backward(gradient: Tensor, inputs: Tensor, weight: Tensor) -> int:
    """Return the memory of the larger part of a convolution's backward pass: first the gradient of the inputs, then
    that of the weight, in addition to that of the inputs. The second has smaller blocks if there are few channels."""
    few = max(weight.shape[:2]) <= _SMALLEST
    first, second = (
        _picture(inputs, least) + _picture(gradient, least) + _kernels(weight, least) - weight.nbytes
        for least in (0, _SMALLEST if few else 0)
    )
    return max(first - inputs.nbytes, second)


def _inputs(inputs: Tensor) -> int:
    """Return the bytes of inputs that need no gradient."""
    return 0 if inputs.shape[1] <= _FEW else _picture(inputs)


def _picture(tensor: Tensor, block: int = 0) -> int:
    """Return the bytes of the inputs or outputs of a convolution in oneDNN's order."""
    channels = tensor.shape[1]
    return tensor.nbytes // channels * _in_blocks(channels, block)


def _kernels(weight: Tensor, block: int = 0) -> int:
    """Return the bytes of the weight of a convolution in oneDNN's order."""
    outputs, inputs = weight.shape[:2]
    return weight.nbytes // (outputs * inputs) * _in_blocks(outputs, block) * _in_blocks(inputs, block)


def _in_blocks(channels: int, block: int) -> int:
    """Return the number of channels rounded up to whole blocks; `block` 0: of the processor's size. A single channel is
    not rounded."""
    return channels if channels == 1 else _up(channels, block or memory_and_work.channels_of_a_block())


class _Lstm(NamedTuple):
    """A layer of oneDNN's LSTM, in fp32. Its matrices have rows of whole cache lines."""

    steps: int
    batch: int
    inputs: int
    width: int

    @classmethod
    def of(cls, inputs: Tensor, outputs: Tensor) -> _Lstm:
        """Return the layer with these inputs and outputs, (time steps, batch, numbers)."""
        steps, batch, width = outputs.shape
        return cls(steps, batch, inputs.shape[2], width)

    @property
    def forward(self) -> int:
        return self._transposed + self._sums

    @property
    def backward(self) -> int:
        """Both weights if their rows are not whole cache lines, their gradients, and the memory of the forward pass."""
        return self._sums + self._transposed + sum(
            4 * 4 * self.width * _row(each) for each in (self.inputs, self.width) if _row(each) != each
        )  # fmt: skip

    @property
    def saved(self) -> int:
        """The gates, two states, their three gradients and the hidden states, of all time steps."""
        one, larger = (self.batch * _row(each) for each in (self.width, max(self.inputs, self.width)))
        state, gradients = 2 * (self.steps + 1) * one, 3 * 2 * (self.steps + 1) * larger
        return self._gates + sum(_up(4 * size, _PAGE) for size in (state, state, gradients, self.steps * one))

    @property
    def _transposed(self) -> int:
        """Both weights or their gradients, one row for each input."""
        return 4 * (self.inputs + self.width) * _row(4 * self.width)

    @property
    def _sums(self) -> int:
        """The bias, which torch sums from two, and the gates of all time steps and of one."""
        return 4 * 4 * self.width + self._gates + _up(4 * self.batch * _row(4 * self.width), _PAGE)

    @property
    def _gates(self) -> int:
        return _up(4 * self.steps * self.batch * _row(4 * self.width), _PAGE)


def _row(numbers: int) -> int:
    """Return the padded length of a row: whole cache lines, but not a multiple of 256, which would map to the same
    cache sets."""
    row = _up(numbers, _LINE)
    return row if row % 256 else row + _LINE


def _up(number: int, whole: int) -> int:
    return -(-number // whole) * whole
