"""Row blocks: their bounds, the functions mapped over them, sparse blocks and block vectors."""
