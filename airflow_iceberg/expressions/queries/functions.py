"""The functions of queries that are understood: each takes the values of its arguments, and nothing else.

Not here: what takes columns that it does not name (`columns`), names as texts (`query`, `identifier`), or makes rows.
"""

from __future__ import annotations


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# Those that sqlglot knows, by its classes; a version that lacks one has it as a name.
CLASSES = _words(
    """
    Abs Acos Asin Atan Atan2 BitwiseAnd BitwiseCount BitwiseLeftShift BitwiseNot BitwiseOr BitwiseRightShift BitwiseXor
    Cbrt Ceil Cos Cosh Cot Degrees Exp Factorial Floor Greatest Hypot IsInf IsNan Least Ln Log Pi Pow Radians Rand Round
    SafeAdd SafeDivide SafeMultiply SafeSubtract Sign Sin Sinh Sqrt Tan Tanh Trunc WidthBucket

    Ascii CharLength Chr Collate Concat ConcatWs Contains Decode Encode EndsWith Format FromBase64 Hex Initcap Left
    Length Levenshtein Lower LowerHex MD5 Overlay Pad RegexpCount RegexpExtract RegexpExtractAll RegexpFullMatch
    RegexpILike
    RegexpLike RegexpReplace RegexpSplit Repeat Replace Reverse Right SHA SHA2 Space Split SplitPart StartsWith
    StrPosition Substring SubstringIndex ToBase64 ToChar ToNumber Translate Trim Unhex Unicode Upper

    AddMonths AtTimeZone CurrentDate CurrentTime CurrentTimestamp Date DateAdd DateBin DateDiff DateFromParts
    DateFromUnixDate DatePart DateSub DateTrunc Day DayOfMonth DayOfWeek DayOfWeekIso DayOfYear Dayname Extract
    FromTimeZone Hour LastDay
    Localtimestamp MakeInterval Minute Month Monthname MonthsBetween NextDay Quarter Second StrToDate StrToTime
    StrToUnix TimeStrToDate TimeStrToTime TimeStrToUnix TimeToStr TimeToTimeStr TimeToUnix TimestampAdd TimestampDiff
    TimestampFromParts TimestampSub TimestampTrunc ToDays TsOrDsAdd TsOrDsDiff TsOrDsToDate TsOrDsToDateStr
    TsOrDsToTimestamp UnixDate UnixMicros UnixMillis UnixSeconds UnixToStr UnixToTime UnixToTimeStr Week WeekOfYear Year

    Array ArrayAppend ArrayCompact ArrayConcat ArrayContains ArrayContainsAll ArrayDistinct ArrayExcept ArrayFilter
    ArrayIntersect ArrayMax ArrayMin ArrayOverlaps ArrayPosition ArrayPrepend ArrayRemove ArrayReverse ArraySize
    ArraySlice ArraySort ArraySum ArrayToString ArrayUnion Flatten FromJson GenerateSeries JSONExtract JSONExtractScalar
    JSONFormat Map
    MapFromArrays MapFromEntries MapKeys ParseJSON Reduce SortArray Struct StructExtract ToMap Transform VarMap

    Coalesce DecodeCase EqualNull If IfNull Nullif NullIf Nvl2 NullifZero Typeof Uuid ZeroIfNull

    AnyValue ApproxDistinct ApproxQuantile ApproxTopK ArgMax ArgMin ArrayAgg ArrayUniqueAgg Avg BitwiseAndAgg
    BitwiseOrAgg BitwiseXorAgg Corr Count CountIf CovarPop CovarSamp CumeDist DenseRank First FirstValue GroupConcat
    Grouping GroupingId Kurtosis Lag Last LastValue Lead LogicalAnd LogicalOr Max Median Min Mode NthValue Ntile
    PercentRank PercentileCont
    PercentileDisc Quantile RankFunc Rank RowNumber Skewness Stddev StddevPop StddevSamp Sum Variance VariancePop
    """
)
# The others, by their names.
NAMES = _words(
    """
    array_length array_size array_sort array_union arrays_overlap base64 bit_count bit_length bround cardinality
    collect_list
    collect_set count_if crc32 date_format date_part date_sub dateadd datepart dayname element_at epoch epoch_ms
    epoch_ns epoch_us every first_value format_number format_string from_unixtime from_utc_timestamp fsum
    get_json_object hash hypot iff ifnull isnotnull isnull isodow isoyear json_array_length json_extract
    json_extract_string json_keys json_type json_valid json_value kahan_sum kurtosis last_value lcase len list_aggregate
    list_contains list_distinct list_filter list_sort list_transform list_value ln make_date make_time make_timestamp
    map_contains_key map_entries map_values max_by mean microsecond millennium millisecond min_by monthname named_struct
    nanvl now octet_length percentile percentile_approx pmod printf product quantile_cont quantile_disc regexp_matches
    rint row_number sha256 shiftleft shiftright signum size slice some sort_array split_part str_split strftime
    string_split strip_accents strlen strptime struct_pack suffix prefix timestamp_micros timestamp_millis
    timestamp_seconds to_date to_json time_bucket to_timestamp to_unix_timestamp to_utc_timestamp today try_add try_avg
    try_divide
    try_multiply try_subtract try_sum typeof ucase unbase64 unix_date unix_timestamp unixepoch weekday weekofyear
    xxhash64 yearweek zip_with forall aggregate
    """
)
