-- Log to files: every bid with its day, hour and minute.
-- sources: bid
CREATE STREAM q10 AS
  SELECT auction, bidder, price, dateTime, extra,
         CAST(dateTime AS DATE) AS dt, EXTRACT(HOUR FROM dateTime) AS hh, EXTRACT(MINUTE FROM dateTime) AS mm
  FROM bid;

-- answer
SELECT auction, bidder, price, dateTime, extra,
       CAST(dateTime AS DATE) AS dt, EXTRACT(HOUR FROM dateTime) AS hh, EXTRACT(MINUTE FROM dateTime) AS mm
FROM bid
