-- inline: the largest texts and entries of streams. Readers find a larger text in the job's record.
-- Defines: ENTRY_BYTES, INLINE_RESULT, INLINE_SPEC
local INLINE_SPEC, INLINE_RESULT = 8192, 65536 -- bytes
local ENTRY_BYTES = 65536 -- bytes of texts in a full entry: a reader keeps its last entry in memory
