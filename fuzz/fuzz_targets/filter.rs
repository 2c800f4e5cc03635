#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| waybill_fuzz::targets::filter(data));
