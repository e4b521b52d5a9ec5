"""Text generation in a dry run, where no token ends a text: all have the maximum length, or the minimum.

The functions get a module after its import.
"""

from . import _draws, _imports

# Of the texts: "max" or "min".
length = "max"
# Whether a program has generated any.
is_used = False


def end_by_length(module):
    """Makes `generate` of transformers stop at the maximum length, or after one token.

    `generate` asks the device whether every sequence has ended, which depends on tokens that the model chooses. The
    host knows the maximum length, where a real run needs the most memory.
    """
    if hasattr(module, "EosTokenCriteria"):

        @_imports.around(module.EosTokenCriteria, "__init__")
        def keep_ends_from_being_drawn(original, self, *args, **kwargs):
            original(self, *args, **kwargs)
            _draws.ends.update(self.eos_token_id.tolist())

    loop, is_below_maximum = getattr(module, "GenerationMixin", None), []

    @_imports.around(getattr(module, "MaxLengthCriteria", None), "__call__")
    def check_length(original, self, input_ids, *args, **kwargs):
        is_below_maximum[:] = [input_ids.shape[-1] < self.max_length]
        return original(self, input_ids, *args, **kwargs)

    @_imports.around(loop, "_has_unfinished_sequences")
    def has_unfinished(original, *args, **kwargs):
        global is_used
        is_used = True
        result = is_below_maximum[0] and length == "max" if is_below_maximum else original(*args, **kwargs)
        del is_below_maximum[:]
        return result

    @_imports.around(loop, "_beam_search_has_unfinished_sequences")
    def has_unfinished_beams(original, *args, **kwargs):
        is_maximum = length == "max" and is_below_maximum
        return has_unfinished(original) if is_maximum else original(*args, **kwargs)


def sample_tokens(module):
    """Makes vLLM sample a token for each request whose prompt is complete.

    The device counts the sampled tokens. Without any, vLLM would wait for them forever.
    """

    @_imports.around(getattr(module, "GPUModelRunner", None), "sample")
    def sample(original, self, hidden_states, batch, *args, **kwargs):
        result = original(self, hidden_states, batch, *args, **kwargs)
        computed = batch.num_computed_prefill_tokens_np + batch.num_scheduled_tokens
        result[1].oomscope_counts = computed >= batch.prefill_len_np
        return result

    @_imports.around(getattr(module, "AsyncOutput", None), "get_output")
    def get_output(original, self):
        counts = getattr(self.num_sampled_tokens, "oomscope_counts", None)
        if counts is not None and counts.shape == self.num_sampled_tokens_np.shape:
            self.num_sampled_tokens_np[:] = counts
        return original(self)
