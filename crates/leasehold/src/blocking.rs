//! The same faces for threads without a runtime.
