//! forge-tests: cross-backend correctness tests.
