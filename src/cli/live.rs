//! `oomscope live`

#[cfg(feature = "cuda")]
mod with_gpu;
#[cfg(feature = "cuda")]
pub(super) use with_gpu::{Live, run};

#[cfg(not(feature = "cuda"))]
mod without {
    use std::ffi::OsString;

    use anyhow::bail;
    use clap::Args;

    use crate::cli::exit::Exit;

    /// Replay the trace on a real GPU (not in this build: needs the feature `cuda`)
    #[derive(Debug, Args)]
    pub(in crate::cli) struct Live {
        /// Arguments of a build with the feature
        #[arg(hide = true, trailing_var_arg = true, allow_hyphen_values = true)]
        _arguments: Vec<OsString>,
    }

    pub(in crate::cli) fn run(_args: &Live) -> anyhow::Result<Exit> {
        bail!(
            "live: this build has no GPU support; rebuild with \
             'cargo install --path . --features cuda'"
        );
    }
}
#[cfg(not(feature = "cuda"))]
pub(super) use without::{Live, run};
