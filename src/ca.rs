//! Connect CA: roots, trust domain and leaf certificates.
