#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| waybill_fuzz::targets::pop_lists(data));
