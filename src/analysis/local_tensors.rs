//! The tensors of the failing function, and what the failed request could be for.

use itertools::Itertools as _;
use serde::Serialize;

use crate::base::units::escape_name;
use crate::snapshot::tensor_bytes;
use crate::stacks::frames::FrameReport;
use crate::study::DeviceStudy;

/// The tensors among the local variables of the function in which a request failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct LocalTensors {
    /// The innermost function of the user.
    pub function: FrameReport,
    /// Its tensors.
    pub tensors: Vec<LocalTensorReport>,
    /// A tensor with dimensions of these that has exactly the size of the request; absent if there is none, or if
    /// several differ.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request: Option<RequestShape>,
}

/// A tensor of the failing function.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct LocalTensorReport {
    /// Name of the variable, or of its attribute or item.
    pub name: String,
    /// Type of the elements, such as `float32`.
    pub dtype: String,
    /// Its shape.
    pub shape: Vec<u64>,
}

/// A tensor of the size of a request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RequestShape {
    /// Type of the elements: that of the variable `like`.
    pub dtype: String,
    /// Its shape.
    pub shape: Vec<u64>,
    /// The variable that has this shape, but for the last dimension.
    pub like: String,
    /// The variable that has this last dimension.
    pub last_of: String,
}

/// PyTorch rounds requests up to a multiple of this.
pub(super) const REQUEST_GRANULE: u64 = 512;
/// Smaller requests have many explanations.
const MIN_EXPLAINED_BYTES: u64 = 1 << 20;

impl LocalTensors {
    /// `requested_bytes` is the failed request that ended the trace of `device`.
    pub(super) fn at_failure(device: DeviceStudy<'_, '_>, requested_bytes: u64) -> Option<Self> {
        let snapshot = device.snapshot();
        let is_here = snapshot.recorder_info.as_ref().is_some_and(|info| info.failure_on(device.id()).is_some());
        let names = snapshot.tensor_names.as_ref().filter(|names| is_here && !names.locals.is_empty())?;
        let frame = snapshot.stacks.frames(names.locals_frame?).first()?;
        let tensors = names.locals.iter().map(|local| {
            let (name, dtype) = (escape_name(snapshot.text(local.name)), escape_name(snapshot.text(local.dtype)));
            LocalTensorReport { name, dtype, shape: local.shape.clone() }
        });
        let tensors: Vec<LocalTensorReport> = tensors.collect();
        let request = explain_request(&tensors, requested_bytes);
        Some(Self { function: device.stacks().frame_report(frame), tensors, request })
    }
}

/// The shape with a last dimension from any of `tensors` that has `bytes` bytes, rounded, if there is only one.
fn explain_request(tensors: &[LocalTensorReport], bytes: u64) -> Option<RequestShape> {
    if bytes < MIN_EXPLAINED_BYTES {
        return None;
    }
    let lasts = tensors.iter().flat_map(|other| other.shape.iter().map(move |last| (other, *last)));
    let pairs = tensors.iter().filter(|tensor| tensor.shape.len() > 1).cartesian_product(lasts);
    let mut found = pairs.filter_map(|(tensor, (other, last))| {
        let shape: Vec<u64> = tensor.shape.iter().take(tensor.shape.len() - 1).copied().chain([last]).collect();
        (request_bytes(&shape, &tensor.dtype) == Some(bytes)).then_some((tensor, other, shape))
    });
    let (tensor, other, shape) = found.next()?;
    let is_only = found.all(|(like, _, known)| (&like.dtype, &known) == (&tensor.dtype, &shape));
    let (dtype, like, last_of) = (tensor.dtype.clone(), tensor.name.clone(), other.name.clone());
    is_only.then_some(RequestShape { dtype, shape, like, last_of })
}

/// Bytes that PyTorch requests for a tensor; `None` if they are too many, or the type is of a later release.
pub(crate) fn request_bytes(shape: &[u64], dtype: &str) -> Option<u64> {
    tensor_bytes(shape, dtype)?.checked_next_multiple_of(REQUEST_GRANULE)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tensor(name: &str, dtype: &str, shape: &[u64]) -> LocalTensorReport {
        LocalTensorReport { name: name.to_owned(), dtype: dtype.to_owned(), shape: shape.to_vec() }
    }

    #[test]
    fn a_product_of_a_matrix_with_itself_is_found() {
        let tensors = [tensor("a", "float32", &[200_000, 64]), tensor("n", "int64", &[3])];
        let found = explain_request(&tensors, 160_000_000_000).unwrap();
        assert_eq!((found.shape, found.like, found.last_of), (vec![200_000, 200_000], "a".into(), "a".into()));
    }

    #[test]
    fn sizes_that_fit_nothing_or_several_shapes_are_not_explained() {
        let tensors = [tensor("a", "float32", &[1000, 500]), tensor("b", "float32", &[500, 1000])];
        // [1000, 1000] by the first, [500, 2000] by none.
        assert_eq!(explain_request(&tensors, 4_000_256).map(|found| found.shape), Some(vec![1000, 1000]));
        assert_eq!(explain_request(&tensors, 5_000_192), None);
        // [1000, 500] and [500, 1000] have the same size.
        assert_eq!(explain_request(&tensors, 2_000_384), None);
        assert_eq!(explain_request(&[tensor("a", "new_type", &[1000, 1000])], 4_000_256), None);
        assert_eq!(explain_request(&[tensor("a", "float32", &[u64::MAX, u64::MAX])], 4_000_256), None);
        assert_eq!(explain_request(&[], 4_000_256), None);
    }

    #[test]
    fn requests_from_one_mebibyte_on_are_explained() {
        let shapes = [511, 512].map(|columns| {
            let found = explain_request(&[tensor("a", "float32", &[512, columns])], 2048 * columns);
            found.map(|found| found.shape)
        });
        assert_eq!(shapes, [None, Some(vec![512, 512])]);
    }

    #[test]
    fn elements_have_the_size_of_their_type() {
        let types = ["int8", "bfloat16", "float32", "int64", "complex128", "quint4x2"];
        let bytes = types.map(|dtype| request_bytes(&[1024, 2], dtype));
        assert_eq!(bytes, [Some(2048), Some(4096), Some(8192), Some(16384), Some(32768), None]);
        assert_eq!([1, 128, 129].map(|len| request_bytes(&[len], "float32")), [Some(512), Some(512), Some(1024)]);
    }
}
