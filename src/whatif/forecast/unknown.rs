//! Why a forecast ends.

use crate::base::warning::words;

words! {
    /// Why a forecast is unsure, or ends.
    pub enum WhyUnknown {
        /// No earlier iteration shows what follows
        NoLoop = "no-loop",
        /// The failed request belongs to the first iteration, and nothing shows the rest of it
        FirstIteration = "first-iteration",
        /// Fewer than two whole iterations before it match it
        SingleIteration = "single-iteration",
        /// The sizes of this iteration are new, and no law predicts the others
        NewSizes = "new-sizes",
        /// The iteration makes requests that no earlier one made
        NewRequests = "new-requests",
        /// Sizes vary from iteration to iteration without a rule
        IrregularSizes = "irregular-sizes",
        /// The trace is too long to replay it further
        LongTrace = "long-trace",
        /// A replay under the recorded settings serves the request too: the cause of its failure is not replayed
        ServedAsRecorded = "served-as-recorded",
    }
}
