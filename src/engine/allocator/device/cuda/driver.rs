//! Calls of the CUDA driver API for one GPU.
//!
//! The types come from cudarc, but not the functions: cudarc's functions panic if an old driver lacks one, cannot
//! represent newer error codes, and load the first `libcuda.so`. With the CUDA toolkit in `LD_LIBRARY_PATH` that is
//! the toolkit's stub; the name used here belongs to a real driver.
#![allow(unsafe_code)] // foreign functions; the others are in `base/input/mapped.rs` and `base/pages.rs`

use std::ffi::{CStr, c_char, c_int, c_uint, c_ulonglong};
use std::marker::PhantomData;
use std::ptr;

use cudarc::driver::sys::{
    CUcontext, CUdevice, CUdevice_attribute, CUdeviceptr, CUmemAccess_flags, CUmemAccessDesc, CUmemAllocationProp,
    CUmemAllocationType, CUmemGenericAllocationHandle, CUmemLocation, CUmemLocationType,
};
use libloading::Library;
use thiserror::Error;

use crate::base::units::size;

/// The driver's library.
const LIBRARY: &str = if cfg!(windows) { "nvcuda.dll" } else { "libcuda.so.1" };
/// `CUDA_ERROR_OUT_OF_MEMORY`
const OUT_OF_MEMORY: c_uint = 2;
/// `CUDA_ERROR_STUB_LIBRARY`
const STUB_LIBRARY: c_uint = 34;
/// `CUDA_ERROR_NO_DEVICE`
const NO_DEVICE: c_uint = 100;
/// Buffer for a GPU's name, including the terminating zero.
const NAME_BYTES: u16 = 256;

/// The GPU cannot be used, or a call failed.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum CudaError {
    #[error("no CUDA driver was found on this machine ({LIBRARY} cannot be loaded): a live replay needs one")]
    NoDriver,
    #[error(
        "the {LIBRARY} that was found is the CUDA toolkit's stub, not a driver: remove its directory from \
         LD_LIBRARY_PATH"
    )]
    Stub,
    /// The driver lacks this function.
    #[error("the CUDA driver is too old: it has no {0}; one for CUDA 11.0 or later is needed")]
    TooOld(&'static str),
    #[error("the CUDA driver finds no GPU that it may use (does CUDA_VISIBLE_DEVICES hide it?)")]
    NoGpu,
    #[error("there is no GPU {gpu}: the driver finds {count}, counted from 0")]
    NoSuchGpu { gpu: u32, count: u32 },
    /// There is no memory for the CUDA context.
    #[error("GPU {0} is full: other processes leave no memory for a CUDA context")]
    Full(u32),
    /// The GPU or its virtualization does not support `cuMemMap`.
    #[error("it has no virtual memory management, which expandable segments need")]
    NoVirtualMemory,
    /// The process has no address range of this size left.
    #[error(
        "cuMemAddressReserve failed: CUDA_ERROR_OUT_OF_MEMORY: no address range of {} is left for an \
         expandable segment (does 'ulimit -v' limit it?)",
        size(*.0)
    )]
    NoAddresses(u64),
    /// The recording maps memory outside the addresses reserved here.
    #[error(
        "the recording maps memory more than 1 TiB above the start of its expandable segment: that \
         cannot be rebuilt on a GPU"
    )]
    TooFar,
    #[error("{call} failed: {name} ({meaning})")]
    Call {
        call: &'static str,
        /// The `CUresult`.
        code: u32,
        /// `cuGetErrorName` of `code`.
        name: String,
        /// `cuGetErrorString` of `code`.
        meaning: String,
    },
}

impl CudaError {
    pub(super) fn is_out_of_memory(&self) -> bool {
        matches!(self, Self::Call { code: OUT_OF_MEMORY, .. })
    }
}

type Code = c_uint;

/// Declares the driver functions in use, and a table of them that is loaded once.
macro_rules! calls {
    ($($name:ident($($argument:ty),*);)*) => {
        #[derive(Debug, Clone, Copy)]
        #[allow(non_snake_case, reason = "the driver's names")]
        struct DriverCalls {
            $($name: unsafe extern "C" fn($($argument),*) -> Code,)*
        }

        impl DriverCalls {
            fn load() -> Result<Self, CudaError> {
                // SAFETY: loading the driver's library runs its initializers, as any CUDA program does.
                let library = unsafe { Library::new(LIBRARY) }.map_err(|_| CudaError::NoDriver)?;
                let calls = Self {
                    $($name: {
                        // SAFETY: the types are those of the CUDA driver API, which keeps them for good.
                        let found = unsafe { library.get(stringify!($name).as_bytes()) };
                        *found.map_err(|_| CudaError::TooOld(stringify!($name)))?
                    },)*
                };
                // The function pointers must stay valid, so the library is never unloaded.
                std::mem::forget(library);
                Ok(calls)
            }
        }
    };
}

calls! {
    cuInit(c_uint);
    cuDriverGetVersion(*mut c_int);
    cuGetErrorName(Code, *mut *const c_char);
    cuGetErrorString(Code, *mut *const c_char);
    cuDeviceGetCount(*mut c_int);
    cuDeviceGet(*mut CUdevice, c_int);
    cuDeviceGetAttribute(*mut c_int, CUdevice_attribute, CUdevice);
    cuDeviceGetName(*mut c_char, c_int, CUdevice);
    cuDevicePrimaryCtxRetain(*mut CUcontext, CUdevice);
    cuDevicePrimaryCtxRelease_v2(CUdevice);
    cuCtxSetCurrent(CUcontext);
    cuCtxSynchronize();
    cuMemGetInfo_v2(*mut usize, *mut usize);
    cuMemAlloc_v2(*mut CUdeviceptr, usize);
    cuMemFree_v2(CUdeviceptr);
    cuMemsetD8_v2(CUdeviceptr, u8, usize);
    cuMemAddressReserve(*mut CUdeviceptr, usize, usize, CUdeviceptr, c_ulonglong);
    cuMemAddressFree(CUdeviceptr, usize);
    cuMemCreate(*mut CUmemGenericAllocationHandle, usize, *const CUmemAllocationProp, c_ulonglong);
    cuMemRelease(CUmemGenericAllocationHandle);
    cuMemMap(CUdeviceptr, usize, usize, CUmemGenericAllocationHandle, c_ulonglong);
    cuMemUnmap(CUdeviceptr, usize);
    cuMemSetAccess(CUdeviceptr, usize, *const CUmemAccessDesc, usize);
}

impl DriverCalls {
    fn check(&self, call: &'static str, code: Code) -> Result<(), CudaError> {
        if code == 0 {
            return Ok(());
        }
        let [name, meaning] = [self.cuGetErrorName, self.cuGetErrorString].map(|get_text| {
            let mut text = ptr::null();
            // SAFETY: the driver writes a pointer to a constant string, or null for a code it does not know.
            let is_known = unsafe { get_text(code, &raw mut text) } == 0 && !text.is_null();
            // SAFETY: checked: a constant string that ends in zero.
            is_known.then(|| unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned())
        });
        let name = name.unwrap_or_else(|| format!("error {code}"));
        let meaning = meaning.unwrap_or_else(|| "no description".to_owned());
        Err(CudaError::Call { call, code, name, meaning })
    }
}

/// Calls a driver function and checks its result.
macro_rules! call {
    ($calls:expr, $name:ident($($argument:expr),*)) => {{
        let calls = &$calls;
        // SAFETY: callers pass out-parameters that outlive the call, and addresses and handles that came from
        // the driver and are not released yet. The driver rejects invalid ones.
        let code = unsafe { (calls.$name)($($argument),*) };
        calls.check(stringify!($name), code)
    }};
}

/// Physical memory (`cuMemCreate`).
#[derive(Debug, Clone, Copy)]
pub(super) struct Handle(CUmemGenericAllocationHandle);

/// The primary context of one GPU, which is the one that PyTorch uses. Released when dropped.
#[derive(Debug)]
pub(super) struct CudaContext {
    calls: DriverCalls,
    device: CUdevice,
    /// The device number, for `CUmemLocation`.
    ordinal: c_int,
    /// The context is current only on the thread that opened it, so the type is neither `Send` nor `Sync`.
    of_thread: PhantomData<*mut ()>,
}

impl CudaContext {
    /// Opens GPU number `gpu`, in the driver's numbering (`CUDA_VISIBLE_DEVICES`).
    pub(super) fn open(gpu: u32) -> Result<Self, CudaError> {
        let calls = DriverCalls::load()?;
        let mut count = 0;
        let counted = call!(calls, cuInit(0)).and_then(|()| call!(calls, cuDeviceGetCount(&raw mut count)));
        counted.map_err(|error| match error {
            CudaError::Call { code: STUB_LIBRARY, .. } => CudaError::Stub,
            CudaError::Call { code: NO_DEVICE, .. } => CudaError::NoGpu,
            other => other,
        })?;
        let count = u32::try_from(count).unwrap_or(0); // never negative
        if count == 0 {
            return Err(CudaError::NoGpu);
        }
        let Some(ordinal) = c_int::try_from(gpu).ok().filter(|_| gpu < count) else {
            return Err(CudaError::NoSuchGpu { gpu, count });
        };
        let mut device = 0;
        call!(calls, cuDeviceGet(&raw mut device, ordinal))?;
        let mut context = ptr::null_mut();
        call!(calls, cuDevicePrimaryCtxRetain(&raw mut context, device))
            .map_err(|error| if error.is_out_of_memory() { CudaError::Full(gpu) } else { error })?;
        let gpu = Self { calls, device, ordinal, of_thread: PhantomData };
        call!(calls, cuCtxSetCurrent(context))?;
        Ok(gpu)
    }

    pub(super) fn name(&self) -> Result<String, CudaError> {
        let mut name: [c_char; NAME_BYTES as usize] = [0; NAME_BYTES as usize];
        call!(self.calls, cuDeviceGetName(name.as_mut_ptr(), c_int::from(NAME_BYTES - 1), self.device))?;
        // SAFETY: the buffer is zeroed and the driver may write all but its last byte, so a zero ends the name.
        let name = unsafe { CStr::from_ptr(name.as_ptr()) };
        Ok(name.to_string_lossy().into_owned())
    }

    /// The newest CUDA release that the driver supports, `(12, 8)` for 12.8.
    pub(super) fn cuda_version(&self) -> Result<(u32, u32), CudaError> {
        let mut version = 0;
        call!(self.calls, cuDriverGetVersion(&raw mut version))?;
        let version = u32::try_from(version).unwrap_or(0); // never negative
        Ok((version / 1000, version % 1000 / 10))
    }

    /// Free bytes and total bytes.
    pub(super) fn memory(&self) -> Result<(u64, u64), CudaError> {
        let (mut free, mut total) = (0, 0);
        call!(self.calls, cuMemGetInfo_v2(&raw mut free, &raw mut total))?;
        Ok((free as u64, total as u64))
    }

    pub(super) fn allocate(&self, size: u64) -> Result<u64, CudaError> {
        let mut addr = 0;
        call!(self.calls, cuMemAlloc_v2(&raw mut addr, driver_size(size)))?;
        Ok(addr)
    }

    pub(super) fn free(&self, addr: u64) -> Result<(), CudaError> {
        call!(self.calls, cuMemFree_v2(addr))
    }

    /// Fills memory with zeros, and waits until that is done.
    pub(super) fn fill(&self, addr: u64, size: u64) -> Result<(), CudaError> {
        call!(self.calls, cuMemsetD8_v2(addr, 0, driver_size(size)))?;
        self.synchronize()
    }

    pub(super) fn synchronize(&self) -> Result<(), CudaError> {
        call!(self.calls, cuCtxSynchronize())
    }

    /// Reserves addresses. If none are left, the error is not [`CudaError::is_out_of_memory`].
    pub(super) fn reserve(&self, size: u64) -> Result<u64, CudaError> {
        let which = CUdevice_attribute::CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED;
        let mut has_virtual_memory = 0;
        call!(self.calls, cuDeviceGetAttribute(&raw mut has_virtual_memory, which, self.device))?;
        if has_virtual_memory == 0 {
            return Err(CudaError::NoVirtualMemory);
        }
        let mut addr = 0;
        call!(self.calls, cuMemAddressReserve(&raw mut addr, driver_size(size), 0, 0, 0))
            .map_err(|error| if error.is_out_of_memory() { CudaError::NoAddresses(size) } else { error })?;
        Ok(addr)
    }

    pub(super) fn release(&self, addr: u64, size: u64) -> Result<(), CudaError> {
        call!(self.calls, cuMemAddressFree(addr, driver_size(size)))
    }

    fn location(&self) -> CUmemLocation {
        CUmemLocation { type_: CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE, id: self.ordinal }
    }

    /// Allocates physical memory, not mapped yet.
    pub(super) fn create(&self, size: u64) -> Result<Handle, CudaError> {
        // SAFETY: a C struct of numbers and one pointer, for which the driver documents zero as unset.
        let mut kind: CUmemAllocationProp = unsafe { std::mem::zeroed() };
        kind.type_ = CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED;
        kind.location = self.location();
        let mut handle = 0;
        call!(self.calls, cuMemCreate(&raw mut handle, driver_size(size), &raw const kind, 0))?;
        Ok(Handle(handle))
    }

    pub(super) fn destroy(&self, handle: Handle) -> Result<(), CudaError> {
        call!(self.calls, cuMemRelease(handle.0))
    }

    pub(super) fn map(&self, addr: u64, size: u64, handle: Handle) -> Result<(), CudaError> {
        call!(self.calls, cuMemMap(addr, driver_size(size), 0, handle.0, 0))
    }

    pub(super) fn unmap(&self, addr: u64, size: u64) -> Result<(), CudaError> {
        call!(self.calls, cuMemUnmap(addr, driver_size(size)))
    }

    /// Makes mapped memory accessible to the GPU.
    pub(super) fn set_access(&self, addr: u64, size: u64) -> Result<(), CudaError> {
        let access =
            CUmemAccessDesc { location: self.location(), flags: CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_READWRITE };
        call!(self.calls, cuMemSetAccess(addr, driver_size(size), &raw const access, 1))
    }
}

impl Drop for CudaContext {
    fn drop(&mut self) {
        // Nobody can handle an error here, and the driver releases everything when the process ends.
        let _ = call!(self.calls, cuDevicePrimaryCtxRelease_v2(self.device));
    }
}

/// Saturates: the driver rejects a size that does not fit.
fn driver_size(size: u64) -> usize {
    usize::try_from(size).unwrap_or(usize::MAX)
}
