-- Calculation: conversion, a CASE on the hour of day, letters counted in a string, and a filter.
-- sources: bid
CREATE STREAM q14 AS
  SELECT auction, bidder, 0.908 * price AS price,
         CASE WHEN EXTRACT(HOUR FROM dateTime) BETWEEN 8 AND 18 THEN 'dayTime'
              WHEN EXTRACT(HOUR FROM dateTime) <= 6 OR EXTRACT(HOUR FROM dateTime) >= 20 THEN 'nightTime'
              ELSE 'otherTime' END AS bidTimeType,
         dateTime, extra, LEN(extra) - LEN(REPLACE(extra, 'c', '')) AS c_counts
  FROM bid
  WHERE 0.908 * price > 1000000 AND 0.908 * price < 50000000;

-- answer
SELECT auction, bidder, 0.908 * price AS price,
       CASE WHEN EXTRACT(HOUR FROM dateTime) BETWEEN 8 AND 18 THEN 'dayTime'
            WHEN EXTRACT(HOUR FROM dateTime) <= 6 OR EXTRACT(HOUR FROM dateTime) >= 20 THEN 'nightTime'
            ELSE 'otherTime' END AS bidTimeType,
       dateTime, extra, len(extra) - len(replace(extra, 'c', '')) AS c_counts
FROM bid
WHERE 0.908 * price > 1000000 AND 0.908 * price < 50000000
