-- User sessions: bids of each bidder per session; 10 s without a bid end it.
-- sources: bid
CREATE TABLE q11 AS
  SELECT bidder, COUNT(*) AS bids, window_start, window_end
  FROM TABLE(SESSION(TABLE bid PARTITION BY bidder, DESCRIPTOR(dateTime), INTERVAL '10' SECOND))
  GROUP BY bidder, window_start, window_end /* EMIT FINAL */;

-- answer
SELECT bidder, count(*) AS bids, window_start, window_end
FROM sessions(bid, bidder, 10000) GROUP BY ALL
