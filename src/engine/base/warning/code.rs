//! The codes of warnings.

use super::words;

words! {
    /// The subject of a warning. Scripts depend on the words; the documentation lists them from here.
    #[non_exhaustive]
    pub enum Code {
        /// No GPU was used: `oomscope dry-run` ran the program with a stub of CUDA
        DryRun = "dry-run",
        /// No entry of a device lies in the selected part of the trace
        EmptyWindow = "empty-window",
        /// A recording ends with a failed request, so the requests that would have followed are unknown
        EndsInFailure = "ends-in-failure",
        /// The release does not record the pool of a failed request, and there are private pools
        FailedPoolNotRecorded = "failed-pool-not-recorded",
        /// The largest size that fits is many times the largest recorded one
        FarAway = "far-away",
        /// Another allocator than PyTorch's native CUDA allocator managed the memory: another `backend`, or
        /// `torch_npu` and similar packages
        ForeignBackend = "foreign-backend",
        /// The trace has no `free_completed` entries, so pending blocks count as free
        FreesNotCompleted = "frees-not-completed",
        /// Memory grows along a curve, and too few sizes were recorded to determine which one
        GuessedGrowth = "guessed-growth",
        /// Settings that do harm together
        HarmfulSettings = "harmful-settings",
        /// Earlier entries were recorded and are lost: the ring of `max_entries` wrapped, or holds one entry
        HistoryLost = "history-lost",
        /// A setting has no effect in combination with the others
        IdleSetting = "idle-setting",
        /// More requests failed than are described
        ManyOoms = "many-ooms",
        /// The model does not reproduce the recording, so results that depend on it are estimates or are omitted
        ModelParted = "model-parted",
        /// Nothing is recorded for the selected device, or for any device
        NoDevice = "no-device",
        /// The selected entry or time is not in the trace of a device
        NoMoment = "no-moment",
        /// One of two snapshots has no trace of a device, so they are compared at the time they were taken
        NoPeak = "no-peak",
        /// No stacks were recorded, so no source line can be named
        NoStacks = "no-stacks",
        /// No history was recorded
        NoTrace = "no-trace",
        /// Segments are inconsistent, so no allocator wrote the file
        NotAllocated = "not-allocated",
        /// The baseline has a snapshot or device that was not passed
        NotChecked = "not-checked",
        /// The baseline does not have this snapshot or device
        NotInBaseline = "not-in-baseline",
        /// A recording differs from what the others predict
        PredictionOff = "prediction-off",
        /// The evidence for the release contradicts itself or the model
        ReleaseUnclear = "release-unclear",
        /// The blocks of a segment do not add up to its size
        SegmentSum = "segment-sum",
        /// Settings changed at run time, as a replay shows
        SettingsChanged = "settings-changed",
        /// The recorded settings were truncated, since they are larger than any that PyTorch writes
        SettingsSize = "settings-size",
        /// `--capacity` is less than the recording reserved
        SmallCapacity = "small-capacity",
        /// Blocks from before the recording lie outside every segment, or overlap
        StartInconsistent = "start-inconsistent",
        /// A recording starts late: memory from before is unknown, and training steps of two are not aligned
        StartsLater = "starts-later",
        /// Entries have earlier times than the entry before
        TimeReversed = "time-reversed",
        /// Entries contradict earlier ones or the snapshot, so figures over time are estimates
        TraceInconsistent = "trace-inconsistent",
        /// The file has bytes after the snapshot
        TrailingBytes = "trailing-bytes",
        /// The trace does not start with an empty allocator
        Truncated = "truncated",
        /// Trace entries with an unknown action were skipped
        UnknownAction = "unknown-action",
        /// Unknown keys were skipped
        UnknownKey = "unknown-key",
        /// A dry run omits memory, or a choice, that only a GPU or a closed library determines
        UnknownMemory = "unknown-memory",
        /// The recorded settings have an option that the release does not know
        UnknownSetting = "unknown-setting",
        /// Recordings of one program differ in more than its size: in settings, or in memory that shrinks as the size
        /// grows
        UnlikeRecordings = "unlike-recordings",
        /// Memory was allocated in only one recording, so its growth is unknown
        Unpaired = "unpaired",
        /// An `[[override]]` of the configuration matches no checked snapshot and device
        UnusedOverride = "unused-override",
        /// The program of a dry run read values from the GPU, which are all zero; the message says whether they
        /// decide a size
        ValuesRead = "values-read",
        /// Steps allocate different sizes, depending on their data; the largest is used
        VaryingShapes = "varying-shapes",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_sorted_by_their_words() {
        assert!(Code::ALL.is_sorted_by_key(|code| code.word()));
    }
}
