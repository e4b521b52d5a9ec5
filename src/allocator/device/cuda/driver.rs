//! The CUDA driver's calls, and what one GPU's context is asked for.
//!
//! The types are cudarc's. Its functions are not used: they panic where an old driver lacks one, cannot hold
//! an error code that is newer than they are, and take the first `libcuda.so`, which is the CUDA toolkit's
//! stub where `LD_LIBRARY_PATH` names its directory: only a driver comes with the name that is loaded here.
#![allow(unsafe_code)] // foreign functions; with `src/input/mapped.rs` the only places

use std::ffi::{CStr, c_char, c_int, c_uint, c_ulonglong};
use std::marker::PhantomData;
use std::ptr;

use cudarc::driver::sys::{
    CUcontext, CUdevice, CUdevice_attribute, CUdeviceptr, CUmemAccess_flags, CUmemAccessDesc,
    CUmemAllocationProp, CUmemAllocationType, CUmemGenericAllocationHandle, CUmemLocation,
    CUmemLocationType,
};
use libloading::Library;
use thiserror::Error;

use crate::base::units::size;

/// What a driver installs.
const LIBRARY: &str = if cfg!(windows) { "nvcuda.dll" } else { "libcuda.so.1" };
/// `CUDA_ERROR_OUT_OF_MEMORY`
const OUT_OF_MEMORY: c_uint = 2;
/// `CUDA_ERROR_STUB_LIBRARY`
const STUB_LIBRARY: c_uint = 34;
/// `CUDA_ERROR_NO_DEVICE`
const NO_DEVICE: c_uint = 100;
/// Bytes for a GPU's name, with the closing zero.
const NAME_BYTES: usize = 256;

/// Why a GPU cannot be used, or which call failed.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum CudaError {
    /// The library cannot be loaded.
    #[error(
        "no CUDA driver was found on this machine ({LIBRARY} cannot be loaded): a live replay needs one"
    )]
    NoDriver,
    /// The library is what programs are linked with where there is no driver.
    #[error(
        "the {LIBRARY} that was found is the CUDA toolkit's stub, not a driver: take its directory out of \
         LD_LIBRARY_PATH"
    )]
    Stub,
    /// The library lacks this call.
    #[error("the CUDA driver is too old: it has no {0}; one for CUDA 11.0 or later is needed")]
    TooOld(&'static str),
    /// The driver sees no GPU.
    #[error("the CUDA driver finds no GPU that it may use (does CUDA_VISIBLE_DEVICES hide it?)")]
    NoGpu,
    /// There are fewer.
    #[error("there is no GPU {gpu}: the driver finds {count}, counted from 0")]
    NoSuchGpu {
        /// As asked for.
        gpu: u32,
        /// How many there are.
        count: u32,
    },
    /// Not even the context fits.
    #[error("GPU {0} is full: beside what others hold, the driver finds no room to open it")]
    Full(u32),
    /// The GPU, or how it is passed on to this machine, lacks what expandable segments are made of.
    #[error("it has no virtual memory management, which expandable segments need")]
    NoVirtualMemory,
    /// No memory is asked for, but addresses of the process.
    #[error(
        "cuMemAddressReserve failed: CUDA_ERROR_OUT_OF_MEMORY: there are no {} of addresses left for an \
         expandable segment (does 'ulimit -v' limit them?)",
        size(*.0)
    )]
    NoAddresses(u64),
    /// Memory at addresses that are not reserved.
    #[error(
        "the recording maps memory more than 1 TiB beyond where its expandable segment begins: that \
         cannot be rebuilt on a GPU"
    )]
    TooFar,
    /// A call failed.
    #[error("{call} failed: {name} ({meaning})")]
    Call {
        /// The driver's function.
        call: &'static str,
        /// Its `CUresult`.
        code: u32,
        /// The name of `code`.
        name: String,
        /// What the driver says about it.
        meaning: String,
    },
}

impl CudaError {
    /// Whether the driver said that memory is out.
    pub(super) fn is_out_of_memory(&self) -> bool {
        matches!(self, Self::Call { code: OUT_OF_MEMORY, .. })
    }
}

type Code = c_uint;

/// The functions that are used, looked up once.
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
                // It stays loaded, as the calls may be made for good.
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
        let text = |ask: unsafe extern "C" fn(Code, *mut *const c_char) -> Code,
                    otherwise: String| {
            let mut text = ptr::null();
            // SAFETY: the driver writes a pointer to a constant string, or null for a code it does not know.
            let is_known = unsafe { ask(code, &raw mut text) } == 0 && !text.is_null();
            // SAFETY: checked: a constant string that ends in zero.
            let known = is_known.then(|| unsafe { CStr::from_ptr(text) });
            known.map_or(otherwise, |text| text.to_string_lossy().into_owned())
        };
        Err(CudaError::Call {
            call,
            code,
            name: text(self.cuGetErrorName, format!("error {code}")),
            meaning: text(self.cuGetErrorString, "the driver knows no more".to_owned()),
        })
    }
}

/// Calls a function of the driver and checks what it returns.
macro_rules! call {
    ($calls:expr, $name:ident($($argument:expr),*)) => {{
        let calls = &$calls;
        // SAFETY: the callers pass out-parameters that live through the call, and addresses and handles
        // that the driver gave and that are not yet given back; a wrong one the driver refuses.
        let code = unsafe { (calls.$name)($($argument),*) };
        calls.check(stringify!($name), code)
    }};
}

/// Physical memory that can be mapped.
#[derive(Debug, Clone, Copy)]
pub(super) struct Handle(CUmemGenericAllocationHandle);

/// One GPU's primary context, the one that PyTorch uses; given back when dropped.
#[derive(Debug)]
pub(super) struct CudaContext {
    calls: DriverCalls,
    device: CUdevice,
    /// Its number, which is how memory is told where to be.
    ordinal: c_int,
    /// The context is current on the thread that made it.
    of_thread: PhantomData<*mut ()>,
}

impl CudaContext {
    /// GPU number `gpu`, as the driver counts (`CUDA_VISIBLE_DEVICES`).
    pub(super) fn open(gpu: u32) -> Result<Self, CudaError> {
        let calls = DriverCalls::load()?;
        let no_gpu = |error| match error {
            CudaError::Call { code: STUB_LIBRARY, .. } => CudaError::Stub,
            CudaError::Call { code: NO_DEVICE, .. } => CudaError::NoGpu,
            other => other,
        };
        call!(calls, cuInit(0)).map_err(no_gpu)?;
        let mut count = 0;
        call!(calls, cuDeviceGetCount(&raw mut count)).map_err(no_gpu)?;
        let count = u32::try_from(count).unwrap_or(0);
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

    /// What the maker calls it.
    pub(super) fn name(&self) -> Result<String, CudaError> {
        let mut name: [c_char; NAME_BYTES] = [0; NAME_BYTES];
        let room = c_int::try_from(NAME_BYTES - 1).unwrap_or(0);
        call!(self.calls, cuDeviceGetName(name.as_mut_ptr(), room, self.device))?;
        // SAFETY: zeroed, and the driver was told of one byte less than there are: a zero ends it.
        let name = unsafe { CStr::from_ptr(name.as_ptr()) };
        Ok(name.to_string_lossy().into_owned())
    }

    /// The newest CUDA that the driver serves, `(12, 8)` for 12.8.
    pub(super) fn cuda_version(&self) -> Result<(u32, u32), CudaError> {
        let mut version = 0;
        call!(self.calls, cuDriverGetVersion(&raw mut version))?;
        let version = u32::try_from(version).unwrap_or(0);
        Ok((version / 1000, version % 1000 / 10))
    }

    /// Bytes that are free now, and all.
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

    /// Writes memory, and waits until that is done.
    pub(super) fn fill(&self, addr: u64, size: u64) -> Result<(), CudaError> {
        call!(self.calls, cuMemsetD8_v2(addr, 0, driver_size(size)))?;
        self.synchronize()
    }

    /// Waits until the GPU has done all that it was told.
    pub(super) fn synchronize(&self) -> Result<(), CudaError> {
        call!(self.calls, cuCtxSynchronize())
    }

    /// Whether memory can be mapped.
    fn has_virtual_memory(&self) -> Result<bool, CudaError> {
        let which = CUdevice_attribute::CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED;
        let mut has = 0;
        call!(self.calls, cuDeviceGetAttribute(&raw mut has, which, self.device))?;
        Ok(has != 0)
    }

    /// Addresses only; that there are none left is not that memory is out.
    pub(super) fn reserve(&self, size: u64) -> Result<u64, CudaError> {
        if !self.has_virtual_memory()? {
            return Err(CudaError::NoVirtualMemory);
        }
        let mut addr = 0;
        call!(self.calls, cuMemAddressReserve(&raw mut addr, driver_size(size), 0, 0, 0)).map_err(
            |error| if error.is_out_of_memory() { CudaError::NoAddresses(size) } else { error },
        )?;
        Ok(addr)
    }

    pub(super) fn release(&self, addr: u64, size: u64) -> Result<(), CudaError> {
        call!(self.calls, cuMemAddressFree(addr, driver_size(size)))
    }

    fn location(&self) -> CUmemLocation {
        CUmemLocation { type_: CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE, id: self.ordinal }
    }

    /// Physical memory, not mapped yet.
    pub(super) fn create(&self, size: u64) -> Result<Handle, CudaError> {
        // SAFETY: a C struct of numbers and one pointer: zero is what the driver documents as unset.
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

    /// Lets the GPU read and write mapped memory.
    pub(super) fn set_access(&self, addr: u64, size: u64) -> Result<(), CudaError> {
        let access = CUmemAccessDesc {
            location: self.location(),
            flags: CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
        };
        call!(self.calls, cuMemSetAccess(addr, driver_size(size), &raw const access, 1))
    }
}

impl Drop for CudaContext {
    fn drop(&mut self) {
        // Nobody is left to tell, and the driver takes everything back when the process ends.
        let _ = call!(self.calls, cuDevicePrimaryCtxRelease_v2(self.device));
    }
}

/// A size as the driver takes it. One that does not fit is more than any memory: it is refused.
fn driver_size(size: u64) -> usize {
    usize::try_from(size).unwrap_or(usize::MAX)
}
