//! The codes of warnings.

use super::words;

words! {
    /// What a warning is about. Scripts go by the words; documentation lists them from here.
    #[non_exhaustive]
    pub enum Code {
        /// No GPU was used: `oomscope dry-run` ran the program over a stub of CUDA
        DryRun = "dry-run",
        /// No entry of a device is in the part of the trace asked for
        EmptyWindow = "empty-window",
        /// A recording ends with a failed request, so what the program would have asked for next is not in it
        EndsInFailure = "ends-in-failure",
        /// The release does not record the pool of a failed request, and there are private pools
        FailedPoolNotRecorded = "failed-pool-not-recorded",
        /// The largest size that fits is many times the largest recorded
        FarAway = "far-away",
        /// The memory is managed by other rules than those of PyTorch's native CUDA allocator: another
        /// `backend`, or `torch_npu` and its like
        ForeignBackend = "foreign-backend",
        /// The trace has no `free_completed` entries, so pending blocks count as free
        FreesNotCompleted = "frees-not-completed",
        /// Memory grows along a bend, of which too few sizes were recorded to tell it from another
        GuessedGrowth = "guessed-growth",
        /// Settings that do harm together
        HarmfulSettings = "harmful-settings",
        /// Entries before the first were recorded and are lost: the ring of `max_entries` is full, or holds
        /// one entry
        HistoryLost = "history-lost",
        /// A setting that has no effect beside the others
        IdleSetting = "idle-setting",
        /// More requests failed than are described
        ManyOoms = "many-ooms",
        /// The model does not reproduce the recording, so what rests on it is an estimate or not claimed
        ModelParted = "model-parted",
        /// Nothing is recorded of the device asked for, or of any
        NoDevice = "no-device",
        /// The moment asked for is not in the trace of a device
        NoMoment = "no-moment",
        /// One of two snapshots has no trace of a device, so they are compared as they were taken
        NoPeak = "no-peak",
        /// No stacks were recorded, so no line of code can be named
        NoStacks = "no-stacks",
        /// No history was recorded
        NoTrace = "no-trace",
        /// Segments contradict themselves, so that no allocator wrote the file
        NotAllocated = "not-allocated",
        /// The baseline has this snapshot or device, and it was not given
        NotChecked = "not-checked",
        /// The baseline does not have this snapshot or device
        NotInBaseline = "not-in-baseline",
        /// A recording is not as the others predict it
        PredictionOff = "prediction-off",
        /// What a file says of its release contradicts itself or the model
        ReleaseUnclear = "release-unclear",
        /// The blocks of a segment do not add up to its size
        SegmentSum = "segment-sum",
        /// Settings change at run time, as a replay found out
        SettingsChanged = "settings-changed",
        /// A recorded option that is not in effect
        SettingsNotInEffect = "settings-not-in-effect",
        /// The recorded settings were cut off, since they are larger than any that PyTorch writes
        SettingsSize = "settings-size",
        /// `--capacity` is less than was reserved
        SmallCapacity = "small-capacity",
        /// Blocks of before the recording lie outside every segment or in one another
        StartInconsistent = "start-inconsistent",
        /// Only one of two recordings begins late, so training steps are not aligned
        StartsLater = "starts-later",
        /// Entries are earlier than the entry before
        TimeReversed = "time-reversed",
        /// Entries contradict those before or the state at the snapshot, so figures over time are estimates
        TraceInconsistent = "trace-inconsistent",
        /// The file has bytes behind the snapshot
        TrailingBytes = "trailing-bytes",
        /// The trace does not begin at an empty allocator
        Truncated = "truncated",
        /// Trace entries of an unknown action were left out
        UnknownAction = "unknown-action",
        /// Unknown keys were left out
        UnknownKey = "unknown-key",
        /// A dry run lacks memory, or a choice, that only a GPU or a closed library knows
        UnknownMemory = "unknown-memory",
        /// An option in the recorded settings that the release does not know
        UnknownSetting = "unknown-setting",
        /// Recordings that are to be of one program differ in more than its size: settings, or what shrinks as it grows
        UnlikeRecordings = "unlike-recordings",
        /// Memory was asked for in one recording only, so that its growth is not known
        Unpaired = "unpaired",
        /// What values of the GPU a dry run read back, all of them zero, and whether they decide a size
        ValuesRead = "values-read",
        /// Steps ask for other sizes, as their data are: the largest is taken
        VaryingShapes = "varying-shapes",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn warnings_sort_by_the_words_of_their_codes() {
        assert!(Code::ALL.is_sorted_by_key(|code| code.word()));
    }
}
