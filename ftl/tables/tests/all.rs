//! The tests of the table FTL as one program: each file by itself would be built with all of an FTL in it.

mod catalog_copies;
mod table_care;
mod tables;
