"""Values for what a program draws from numbers that a dry run does not know.

A sampler picks one of many: a token by its logits, an expert by its router, an action by its policy. The numbers come
from the model, whose parameters are not computed. Any pick is possible, so a dry run draws one at random, each as
likely as the others. The values are marked as assumed.

Numbers that are not known are taken to be finite, and not to be NaN. Only the tokens that end a text are never drawn: a
text then has the maximum length, which needs the most memory.
"""

import functools

# Elements of the largest tensor that is sorted or compared so.
MAX_ELEMENTS = 1 << 17
INFINITE = (float("inf"), float("-inf"))
# Tokens that end a text.
ends = set()


def pick(torch, generator, count, sizes):
    """One of `count` for each element."""
    drawn = torch.randint(max(count, 1), sizes, generator=generator)
    if count > 2 * len(ends):
        for _ in ends:
            for end in ends:
                drawn = torch.where(drawn == end, (drawn + 1) % count, drawn)
    return drawn


def argmax(torch, generator, tensor, dim=None, keepdim=False):
    if dim is None or not tensor.dim():
        return pick(torch, generator, tensor.numel(), ())
    sizes = list(tensor.size())
    count, sizes[dim] = sizes[dim], 1
    drawn = pick(torch, generator, count, sizes)
    return drawn if keepdim else drawn.squeeze(dim)


def multinomial(torch, generator, tensor, num_samples, replacement=False, **_):
    sizes = list(tensor.size())
    if replacement or num_samples == 1:
        return pick(torch, generator, sizes[-1], [*sizes[:-1], num_samples])
    return distinct(torch, generator, sizes, len(sizes) - 1, num_samples)


def topk(torch, generator, tensor, k, dim=-1, *_, **__):
    return None, distinct(torch, generator, list(tensor.size()), dim, k)


def sort(torch, generator, tensor, dim=-1, *_, **__):
    sizes = list(tensor.size())
    if tensor.numel() > MAX_ELEMENTS:
        return None
    return None, distinct(torch, generator, sizes, dim, sizes[dim] if sizes else 1)


def maximum(torch, generator, tensor, dim, keepdim=False):
    return None, argmax(torch, generator, tensor, dim, keepdim)


def nonzero(torch, _, tensor):
    """All elements: the most memory."""
    return torch.ones(tensor.size()).nonzero() if tensor.numel() <= MAX_ELEMENTS else None


def distinct(torch, generator, sizes, dim, count):
    """`count` different indices into dimension `dim` of a tensor of these sizes: neighbours, from a random one on."""
    if not sizes:
        return torch.zeros((), dtype=torch.int64)
    steps = [1] * len(sizes)
    steps[dim] = count
    length, sizes[dim] = max(sizes[dim], 1), 1
    return (torch.randint(length, sizes, generator=generator) + torch.arange(count).view(steps)) % length


def compared(torch, tensor, value):
    """A result of an elementwise comparison; None if it is too large to be kept."""
    return torch.full(tensor.size(), value, dtype=torch.bool) if tensor.numel() <= MAX_ELEMENTS else None


def equals(torch, _, tensor, other, of_same=True):
    """x == x, and x == inf: numbers are finite. Other comparisons are not known."""
    if other is tensor:
        return compared(torch, tensor, of_same)
    return compared(torch, tensor, not of_same) if type(other) is float and other in INFINITE else None


# By the name of the operator: a function of its arguments that returns its results; None for one that is not drawn.
DRAWS = {
    "argmax": argmax,
    "argmin": argmax,
    "multinomial": multinomial,
    "topk": topk,
    "sort": sort,
    "sort.stable": sort,
    "max.dim": maximum,
    "min.dim": maximum,
    "nonzero": nonzero,
}
# The same for questions whether numbers are finite.
COMPARISONS = {
    "isnan": lambda torch, _, tensor: compared(torch, tensor, False),
    "eq.Tensor": equals,
    "eq.Scalar": equals,
    "ne.Tensor": functools.partial(equals, of_same=False),
    "ne.Scalar": functools.partial(equals, of_same=False),
}
